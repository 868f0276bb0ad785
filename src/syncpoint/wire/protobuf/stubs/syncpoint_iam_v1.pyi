import datetime
from syncpoint.wire.protobuf.stubs import google_api
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
class ServiceAccount(_message.Message):
    email: str
    project: str
    display_name: str
    create_time: _timestamp_pb2.Timestamp
    unique_id: str
    reserved: bool
    def __init__(self, email: _Optional[str] = ..., project: _Optional[str] = ..., display_name: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., unique_id: _Optional[str] = ..., reserved: _Optional[bool] = ...) -> None: ...
class CreateServiceAccountRequest(_message.Message):
    project: str
    email: str
    display_name: str
    def __init__(self, project: _Optional[str] = ..., email: _Optional[str] = ..., display_name: _Optional[str] = ...) -> None: ...
class ListServiceAccountsRequest(_message.Message):
    project: str
    foreign: bool
    def __init__(self, project: _Optional[str] = ..., foreign: _Optional[bool] = ...) -> None: ...
class ListServiceAccountsResponse(_message.Message):
    accounts: _containers.RepeatedCompositeFieldContainer[ServiceAccount]
    def __init__(self, accounts: _Optional[_Iterable[_Union[ServiceAccount, _Mapping]]] = ...) -> None: ...
class DeleteServiceAccountRequest(_message.Message):
    email: str
    def __init__(self, email: _Optional[str] = ...) -> None: ...
class ServiceAccountKey(_message.Message):
    id: str
    public_key: str
    create_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., public_key: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
class AddServiceAccountKeyRequest(_message.Message):
    email: str
    public_key: str
    ttl: _duration_pb2.Duration
    def __init__(self, email: _Optional[str] = ..., public_key: _Optional[str] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
class ListServiceAccountKeysRequest(_message.Message):
    email: str
    def __init__(self, email: _Optional[str] = ...) -> None: ...
class ListServiceAccountKeysResponse(_message.Message):
    keys: _containers.RepeatedCompositeFieldContainer[ServiceAccountKey]
    def __init__(self, keys: _Optional[_Iterable[_Union[ServiceAccountKey, _Mapping]]] = ...) -> None: ...
class DeleteServiceAccountKeyRequest(_message.Message):
    email: str
    id: str
    def __init__(self, email: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...
