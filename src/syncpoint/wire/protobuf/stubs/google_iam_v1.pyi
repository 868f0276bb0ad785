from syncpoint.wire.protobuf.stubs import google_api
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
class SetIamPolicyRequest(_message.Message):
    resource: str
    policy: Policy
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, resource: _Optional[str] = ..., policy: _Optional[_Union[Policy, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...
class GetIamPolicyRequest(_message.Message):
    resource: str
    options: GetPolicyOptions
    def __init__(self, resource: _Optional[str] = ..., options: _Optional[_Union[GetPolicyOptions, _Mapping]] = ...) -> None: ...
class TestIamPermissionsRequest(_message.Message):
    resource: str
    permissions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, resource: _Optional[str] = ..., permissions: _Optional[_Iterable[str]] = ...) -> None: ...
class TestIamPermissionsResponse(_message.Message):
    permissions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, permissions: _Optional[_Iterable[str]] = ...) -> None: ...
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional
class GetPolicyOptions(_message.Message):
    requested_policy_version: int
    def __init__(self, requested_policy_version: _Optional[int] = ...) -> None: ...
from syncpoint.wire.protobuf.stubs import google_type
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
class Policy(_message.Message):
    version: int
    bindings: _containers.RepeatedCompositeFieldContainer[Binding]
    etag: bytes
    def __init__(self, version: _Optional[int] = ..., bindings: _Optional[_Iterable[_Union[Binding, _Mapping]]] = ..., etag: _Optional[bytes] = ...) -> None: ...
class Binding(_message.Message):
    role: str
    members: _containers.RepeatedScalarFieldContainer[str]
    condition: google_type.Expr
    def __init__(self, role: _Optional[str] = ..., members: _Optional[_Iterable[str]] = ..., condition: _Optional[_Union[google_type.Expr, _Mapping]] = ...) -> None: ...
