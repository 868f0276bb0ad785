import datetime
from syncpoint.wire.protobuf.stubs import google_api
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
class MessageStoragePolicy(_message.Message):
    allowed_persistence_regions: _containers.RepeatedScalarFieldContainer[str]
    enforce_in_transit: bool
    def __init__(self, allowed_persistence_regions: _Optional[_Iterable[str]] = ..., enforce_in_transit: _Optional[bool] = ...) -> None: ...
class SchemaSettings(_message.Message):
    schema: str
    encoding: Encoding
    first_revision_id: str
    last_revision_id: str
    def __init__(self, schema: _Optional[str] = ..., encoding: _Optional[_Union[Encoding, int, str]] = ..., first_revision_id: _Optional[str] = ..., last_revision_id: _Optional[str] = ...) -> None: ...
class IngestionDataSourceSettings(_message.Message):
    class AwsKinesis(_message.Message):
        class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            STATE_UNSPECIFIED: _ClassVar[IngestionDataSourceSettings.AwsKinesis.State]
            ACTIVE: _ClassVar[IngestionDataSourceSettings.AwsKinesis.State]
            KINESIS_PERMISSION_DENIED: _ClassVar[IngestionDataSourceSettings.AwsKinesis.State]
            PUBLISH_PERMISSION_DENIED: _ClassVar[IngestionDataSourceSettings.AwsKinesis.State]
            STREAM_NOT_FOUND: _ClassVar[IngestionDataSourceSettings.AwsKinesis.State]
            CONSUMER_NOT_FOUND: _ClassVar[IngestionDataSourceSettings.AwsKinesis.State]
            CONFLICTING_REGION_CONSTRAINTS: _ClassVar[IngestionDataSourceSettings.AwsKinesis.State]
        STATE_UNSPECIFIED: IngestionDataSourceSettings.AwsKinesis.State
        ACTIVE: IngestionDataSourceSettings.AwsKinesis.State
        KINESIS_PERMISSION_DENIED: IngestionDataSourceSettings.AwsKinesis.State
        PUBLISH_PERMISSION_DENIED: IngestionDataSourceSettings.AwsKinesis.State
        STREAM_NOT_FOUND: IngestionDataSourceSettings.AwsKinesis.State
        CONSUMER_NOT_FOUND: IngestionDataSourceSettings.AwsKinesis.State
        CONFLICTING_REGION_CONSTRAINTS: IngestionDataSourceSettings.AwsKinesis.State
        state: IngestionDataSourceSettings.AwsKinesis.State
        stream_arn: str
        consumer_arn: str
        aws_role_arn: str
        gcp_service_account: str
        def __init__(self, state: _Optional[_Union[IngestionDataSourceSettings.AwsKinesis.State, int, str]] = ..., stream_arn: _Optional[str] = ..., consumer_arn: _Optional[str] = ..., aws_role_arn: _Optional[str] = ..., gcp_service_account: _Optional[str] = ...) -> None: ...
    class CloudStorage(_message.Message):
        class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            STATE_UNSPECIFIED: _ClassVar[IngestionDataSourceSettings.CloudStorage.State]
            ACTIVE: _ClassVar[IngestionDataSourceSettings.CloudStorage.State]
            CLOUD_STORAGE_PERMISSION_DENIED: _ClassVar[IngestionDataSourceSettings.CloudStorage.State]
            PUBLISH_PERMISSION_DENIED: _ClassVar[IngestionDataSourceSettings.CloudStorage.State]
            BUCKET_NOT_FOUND: _ClassVar[IngestionDataSourceSettings.CloudStorage.State]
            TOO_MANY_OBJECTS: _ClassVar[IngestionDataSourceSettings.CloudStorage.State]
            CONFLICTING_REGION_CONSTRAINTS: _ClassVar[IngestionDataSourceSettings.CloudStorage.State]
        STATE_UNSPECIFIED: IngestionDataSourceSettings.CloudStorage.State
        ACTIVE: IngestionDataSourceSettings.CloudStorage.State
        CLOUD_STORAGE_PERMISSION_DENIED: IngestionDataSourceSettings.CloudStorage.State
        PUBLISH_PERMISSION_DENIED: IngestionDataSourceSettings.CloudStorage.State
        BUCKET_NOT_FOUND: IngestionDataSourceSettings.CloudStorage.State
        TOO_MANY_OBJECTS: IngestionDataSourceSettings.CloudStorage.State
        CONFLICTING_REGION_CONSTRAINTS: IngestionDataSourceSettings.CloudStorage.State
        class TextFormat(_message.Message):
            delimiter: str
            def __init__(self, delimiter: _Optional[str] = ...) -> None: ...
        class AvroFormat(_message.Message):
            def __init__(self) -> None: ...
        class PubSubAvroFormat(_message.Message):
            def __init__(self) -> None: ...
        state: IngestionDataSourceSettings.CloudStorage.State
        bucket: str
        text_format: IngestionDataSourceSettings.CloudStorage.TextFormat
        avro_format: IngestionDataSourceSettings.CloudStorage.AvroFormat
        pubsub_avro_format: IngestionDataSourceSettings.CloudStorage.PubSubAvroFormat
        minimum_object_create_time: _timestamp_pb2.Timestamp
        match_glob: str
        def __init__(self, state: _Optional[_Union[IngestionDataSourceSettings.CloudStorage.State, int, str]] = ..., bucket: _Optional[str] = ..., text_format: _Optional[_Union[IngestionDataSourceSettings.CloudStorage.TextFormat, _Mapping]] = ..., avro_format: _Optional[_Union[IngestionDataSourceSettings.CloudStorage.AvroFormat, _Mapping]] = ..., pubsub_avro_format: _Optional[_Union[IngestionDataSourceSettings.CloudStorage.PubSubAvroFormat, _Mapping]] = ..., minimum_object_create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., match_glob: _Optional[str] = ...) -> None: ...
    class AzureEventHubs(_message.Message):
        class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            STATE_UNSPECIFIED: _ClassVar[IngestionDataSourceSettings.AzureEventHubs.State]
            ACTIVE: _ClassVar[IngestionDataSourceSettings.AzureEventHubs.State]
            EVENT_HUBS_PERMISSION_DENIED: _ClassVar[IngestionDataSourceSettings.AzureEventHubs.State]
            PUBLISH_PERMISSION_DENIED: _ClassVar[IngestionDataSourceSettings.AzureEventHubs.State]
            NAMESPACE_NOT_FOUND: _ClassVar[IngestionDataSourceSettings.AzureEventHubs.State]
            EVENT_HUB_NOT_FOUND: _ClassVar[IngestionDataSourceSettings.AzureEventHubs.State]
            SUBSCRIPTION_NOT_FOUND: _ClassVar[IngestionDataSourceSettings.AzureEventHubs.State]
            RESOURCE_GROUP_NOT_FOUND: _ClassVar[IngestionDataSourceSettings.AzureEventHubs.State]
            CONFLICTING_REGION_CONSTRAINTS: _ClassVar[IngestionDataSourceSettings.AzureEventHubs.State]
        STATE_UNSPECIFIED: IngestionDataSourceSettings.AzureEventHubs.State
        ACTIVE: IngestionDataSourceSettings.AzureEventHubs.State
        EVENT_HUBS_PERMISSION_DENIED: IngestionDataSourceSettings.AzureEventHubs.State
        PUBLISH_PERMISSION_DENIED: IngestionDataSourceSettings.AzureEventHubs.State
        NAMESPACE_NOT_FOUND: IngestionDataSourceSettings.AzureEventHubs.State
        EVENT_HUB_NOT_FOUND: IngestionDataSourceSettings.AzureEventHubs.State
        SUBSCRIPTION_NOT_FOUND: IngestionDataSourceSettings.AzureEventHubs.State
        RESOURCE_GROUP_NOT_FOUND: IngestionDataSourceSettings.AzureEventHubs.State
        CONFLICTING_REGION_CONSTRAINTS: IngestionDataSourceSettings.AzureEventHubs.State
        state: IngestionDataSourceSettings.AzureEventHubs.State
        resource_group: str
        namespace: str
        event_hub: str
        client_id: str
        tenant_id: str
        subscription_id: str
        gcp_service_account: str
        def __init__(self, state: _Optional[_Union[IngestionDataSourceSettings.AzureEventHubs.State, int, str]] = ..., resource_group: _Optional[str] = ..., namespace: _Optional[str] = ..., event_hub: _Optional[str] = ..., client_id: _Optional[str] = ..., tenant_id: _Optional[str] = ..., subscription_id: _Optional[str] = ..., gcp_service_account: _Optional[str] = ...) -> None: ...
    class AwsMsk(_message.Message):
        class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            STATE_UNSPECIFIED: _ClassVar[IngestionDataSourceSettings.AwsMsk.State]
            ACTIVE: _ClassVar[IngestionDataSourceSettings.AwsMsk.State]
            MSK_PERMISSION_DENIED: _ClassVar[IngestionDataSourceSettings.AwsMsk.State]
            PUBLISH_PERMISSION_DENIED: _ClassVar[IngestionDataSourceSettings.AwsMsk.State]
            CLUSTER_NOT_FOUND: _ClassVar[IngestionDataSourceSettings.AwsMsk.State]
            TOPIC_NOT_FOUND: _ClassVar[IngestionDataSourceSettings.AwsMsk.State]
            CONFLICTING_REGION_CONSTRAINTS: _ClassVar[IngestionDataSourceSettings.AwsMsk.State]
        STATE_UNSPECIFIED: IngestionDataSourceSettings.AwsMsk.State
        ACTIVE: IngestionDataSourceSettings.AwsMsk.State
        MSK_PERMISSION_DENIED: IngestionDataSourceSettings.AwsMsk.State
        PUBLISH_PERMISSION_DENIED: IngestionDataSourceSettings.AwsMsk.State
        CLUSTER_NOT_FOUND: IngestionDataSourceSettings.AwsMsk.State
        TOPIC_NOT_FOUND: IngestionDataSourceSettings.AwsMsk.State
        CONFLICTING_REGION_CONSTRAINTS: IngestionDataSourceSettings.AwsMsk.State
        state: IngestionDataSourceSettings.AwsMsk.State
        cluster_arn: str
        topic: str
        aws_role_arn: str
        gcp_service_account: str
        def __init__(self, state: _Optional[_Union[IngestionDataSourceSettings.AwsMsk.State, int, str]] = ..., cluster_arn: _Optional[str] = ..., topic: _Optional[str] = ..., aws_role_arn: _Optional[str] = ..., gcp_service_account: _Optional[str] = ...) -> None: ...
    class ConfluentCloud(_message.Message):
        class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            STATE_UNSPECIFIED: _ClassVar[IngestionDataSourceSettings.ConfluentCloud.State]
            ACTIVE: _ClassVar[IngestionDataSourceSettings.ConfluentCloud.State]
            CONFLUENT_CLOUD_PERMISSION_DENIED: _ClassVar[IngestionDataSourceSettings.ConfluentCloud.State]
            PUBLISH_PERMISSION_DENIED: _ClassVar[IngestionDataSourceSettings.ConfluentCloud.State]
            UNREACHABLE_BOOTSTRAP_SERVER: _ClassVar[IngestionDataSourceSettings.ConfluentCloud.State]
            CLUSTER_NOT_FOUND: _ClassVar[IngestionDataSourceSettings.ConfluentCloud.State]
            TOPIC_NOT_FOUND: _ClassVar[IngestionDataSourceSettings.ConfluentCloud.State]
            CONFLICTING_REGION_CONSTRAINTS: _ClassVar[IngestionDataSourceSettings.ConfluentCloud.State]
        STATE_UNSPECIFIED: IngestionDataSourceSettings.ConfluentCloud.State
        ACTIVE: IngestionDataSourceSettings.ConfluentCloud.State
        CONFLUENT_CLOUD_PERMISSION_DENIED: IngestionDataSourceSettings.ConfluentCloud.State
        PUBLISH_PERMISSION_DENIED: IngestionDataSourceSettings.ConfluentCloud.State
        UNREACHABLE_BOOTSTRAP_SERVER: IngestionDataSourceSettings.ConfluentCloud.State
        CLUSTER_NOT_FOUND: IngestionDataSourceSettings.ConfluentCloud.State
        TOPIC_NOT_FOUND: IngestionDataSourceSettings.ConfluentCloud.State
        CONFLICTING_REGION_CONSTRAINTS: IngestionDataSourceSettings.ConfluentCloud.State
        state: IngestionDataSourceSettings.ConfluentCloud.State
        bootstrap_server: str
        cluster_id: str
        topic: str
        identity_pool_id: str
        gcp_service_account: str
        def __init__(self, state: _Optional[_Union[IngestionDataSourceSettings.ConfluentCloud.State, int, str]] = ..., bootstrap_server: _Optional[str] = ..., cluster_id: _Optional[str] = ..., topic: _Optional[str] = ..., identity_pool_id: _Optional[str] = ..., gcp_service_account: _Optional[str] = ...) -> None: ...
    aws_kinesis: IngestionDataSourceSettings.AwsKinesis
    cloud_storage: IngestionDataSourceSettings.CloudStorage
    azure_event_hubs: IngestionDataSourceSettings.AzureEventHubs
    aws_msk: IngestionDataSourceSettings.AwsMsk
    confluent_cloud: IngestionDataSourceSettings.ConfluentCloud
    platform_logs_settings: PlatformLogsSettings
    def __init__(self, aws_kinesis: _Optional[_Union[IngestionDataSourceSettings.AwsKinesis, _Mapping]] = ..., cloud_storage: _Optional[_Union[IngestionDataSourceSettings.CloudStorage, _Mapping]] = ..., azure_event_hubs: _Optional[_Union[IngestionDataSourceSettings.AzureEventHubs, _Mapping]] = ..., aws_msk: _Optional[_Union[IngestionDataSourceSettings.AwsMsk, _Mapping]] = ..., confluent_cloud: _Optional[_Union[IngestionDataSourceSettings.ConfluentCloud, _Mapping]] = ..., platform_logs_settings: _Optional[_Union[PlatformLogsSettings, _Mapping]] = ...) -> None: ...
class PlatformLogsSettings(_message.Message):
    class Severity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        SEVERITY_UNSPECIFIED: _ClassVar[PlatformLogsSettings.Severity]
        DISABLED: _ClassVar[PlatformLogsSettings.Severity]
        DEBUG: _ClassVar[PlatformLogsSettings.Severity]
        INFO: _ClassVar[PlatformLogsSettings.Severity]
        WARNING: _ClassVar[PlatformLogsSettings.Severity]
        ERROR: _ClassVar[PlatformLogsSettings.Severity]
    SEVERITY_UNSPECIFIED: PlatformLogsSettings.Severity
    DISABLED: PlatformLogsSettings.Severity
    DEBUG: PlatformLogsSettings.Severity
    INFO: PlatformLogsSettings.Severity
    WARNING: PlatformLogsSettings.Severity
    ERROR: PlatformLogsSettings.Severity
    severity: PlatformLogsSettings.Severity
    def __init__(self, severity: _Optional[_Union[PlatformLogsSettings.Severity, int, str]] = ...) -> None: ...
class IngestionFailureEvent(_message.Message):
    class ApiViolationReason(_message.Message):
        def __init__(self) -> None: ...
    class AvroFailureReason(_message.Message):
        def __init__(self) -> None: ...
    class SchemaViolationReason(_message.Message):
        def __init__(self) -> None: ...
    class MessageTransformationFailureReason(_message.Message):
        def __init__(self) -> None: ...
    class CloudStorageFailure(_message.Message):
        bucket: str
        object_name: str
        object_generation: int
        avro_failure_reason: IngestionFailureEvent.AvroFailureReason
        api_violation_reason: IngestionFailureEvent.ApiViolationReason
        schema_violation_reason: IngestionFailureEvent.SchemaViolationReason
        message_transformation_failure_reason: IngestionFailureEvent.MessageTransformationFailureReason
        def __init__(self, bucket: _Optional[str] = ..., object_name: _Optional[str] = ..., object_generation: _Optional[int] = ..., avro_failure_reason: _Optional[_Union[IngestionFailureEvent.AvroFailureReason, _Mapping]] = ..., api_violation_reason: _Optional[_Union[IngestionFailureEvent.ApiViolationReason, _Mapping]] = ..., schema_violation_reason: _Optional[_Union[IngestionFailureEvent.SchemaViolationReason, _Mapping]] = ..., message_transformation_failure_reason: _Optional[_Union[IngestionFailureEvent.MessageTransformationFailureReason, _Mapping]] = ...) -> None: ...
    class AwsMskFailureReason(_message.Message):
        cluster_arn: str
        kafka_topic: str
        partition_id: int
        offset: int
        api_violation_reason: IngestionFailureEvent.ApiViolationReason
        schema_violation_reason: IngestionFailureEvent.SchemaViolationReason
        message_transformation_failure_reason: IngestionFailureEvent.MessageTransformationFailureReason
        def __init__(self, cluster_arn: _Optional[str] = ..., kafka_topic: _Optional[str] = ..., partition_id: _Optional[int] = ..., offset: _Optional[int] = ..., api_violation_reason: _Optional[_Union[IngestionFailureEvent.ApiViolationReason, _Mapping]] = ..., schema_violation_reason: _Optional[_Union[IngestionFailureEvent.SchemaViolationReason, _Mapping]] = ..., message_transformation_failure_reason: _Optional[_Union[IngestionFailureEvent.MessageTransformationFailureReason, _Mapping]] = ...) -> None: ...
    class AzureEventHubsFailureReason(_message.Message):
        namespace: str
        event_hub: str
        partition_id: int
        offset: int
        api_violation_reason: IngestionFailureEvent.ApiViolationReason
        schema_violation_reason: IngestionFailureEvent.SchemaViolationReason
        message_transformation_failure_reason: IngestionFailureEvent.MessageTransformationFailureReason
        def __init__(self, namespace: _Optional[str] = ..., event_hub: _Optional[str] = ..., partition_id: _Optional[int] = ..., offset: _Optional[int] = ..., api_violation_reason: _Optional[_Union[IngestionFailureEvent.ApiViolationReason, _Mapping]] = ..., schema_violation_reason: _Optional[_Union[IngestionFailureEvent.SchemaViolationReason, _Mapping]] = ..., message_transformation_failure_reason: _Optional[_Union[IngestionFailureEvent.MessageTransformationFailureReason, _Mapping]] = ...) -> None: ...
    class ConfluentCloudFailureReason(_message.Message):
        cluster_id: str
        kafka_topic: str
        partition_id: int
        offset: int
        api_violation_reason: IngestionFailureEvent.ApiViolationReason
        schema_violation_reason: IngestionFailureEvent.SchemaViolationReason
        message_transformation_failure_reason: IngestionFailureEvent.MessageTransformationFailureReason
        def __init__(self, cluster_id: _Optional[str] = ..., kafka_topic: _Optional[str] = ..., partition_id: _Optional[int] = ..., offset: _Optional[int] = ..., api_violation_reason: _Optional[_Union[IngestionFailureEvent.ApiViolationReason, _Mapping]] = ..., schema_violation_reason: _Optional[_Union[IngestionFailureEvent.SchemaViolationReason, _Mapping]] = ..., message_transformation_failure_reason: _Optional[_Union[IngestionFailureEvent.MessageTransformationFailureReason, _Mapping]] = ...) -> None: ...
    class AwsKinesisFailureReason(_message.Message):
        stream_arn: str
        partition_key: str
        sequence_number: str
        schema_violation_reason: IngestionFailureEvent.SchemaViolationReason
        message_transformation_failure_reason: IngestionFailureEvent.MessageTransformationFailureReason
        api_violation_reason: IngestionFailureEvent.ApiViolationReason
        def __init__(self, stream_arn: _Optional[str] = ..., partition_key: _Optional[str] = ..., sequence_number: _Optional[str] = ..., schema_violation_reason: _Optional[_Union[IngestionFailureEvent.SchemaViolationReason, _Mapping]] = ..., message_transformation_failure_reason: _Optional[_Union[IngestionFailureEvent.MessageTransformationFailureReason, _Mapping]] = ..., api_violation_reason: _Optional[_Union[IngestionFailureEvent.ApiViolationReason, _Mapping]] = ...) -> None: ...
    topic: str
    error_message: str
    cloud_storage_failure: IngestionFailureEvent.CloudStorageFailure
    aws_msk_failure: IngestionFailureEvent.AwsMskFailureReason
    azure_event_hubs_failure: IngestionFailureEvent.AzureEventHubsFailureReason
    confluent_cloud_failure: IngestionFailureEvent.ConfluentCloudFailureReason
    aws_kinesis_failure: IngestionFailureEvent.AwsKinesisFailureReason
    def __init__(self, topic: _Optional[str] = ..., error_message: _Optional[str] = ..., cloud_storage_failure: _Optional[_Union[IngestionFailureEvent.CloudStorageFailure, _Mapping]] = ..., aws_msk_failure: _Optional[_Union[IngestionFailureEvent.AwsMskFailureReason, _Mapping]] = ..., azure_event_hubs_failure: _Optional[_Union[IngestionFailureEvent.AzureEventHubsFailureReason, _Mapping]] = ..., confluent_cloud_failure: _Optional[_Union[IngestionFailureEvent.ConfluentCloudFailureReason, _Mapping]] = ..., aws_kinesis_failure: _Optional[_Union[IngestionFailureEvent.AwsKinesisFailureReason, _Mapping]] = ...) -> None: ...
class JavaScriptUDF(_message.Message):
    function_name: str
    code: str
    def __init__(self, function_name: _Optional[str] = ..., code: _Optional[str] = ...) -> None: ...
class Compression(_message.Message):
    class CompressionAlgorithm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        COMPRESSION_ALGORITHM_UNSPECIFIED: _ClassVar[Compression.CompressionAlgorithm]
        ZLIB: _ClassVar[Compression.CompressionAlgorithm]
        ZSTD: _ClassVar[Compression.CompressionAlgorithm]
    COMPRESSION_ALGORITHM_UNSPECIFIED: Compression.CompressionAlgorithm
    ZLIB: Compression.CompressionAlgorithm
    ZSTD: Compression.CompressionAlgorithm
    class CompressionMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        COMPRESSION_MODE_UNSPECIFIED: _ClassVar[Compression.CompressionMode]
        COMPRESS: _ClassVar[Compression.CompressionMode]
        DECOMPRESS: _ClassVar[Compression.CompressionMode]
    COMPRESSION_MODE_UNSPECIFIED: Compression.CompressionMode
    COMPRESS: Compression.CompressionMode
    DECOMPRESS: Compression.CompressionMode
    compression_algorithm: Compression.CompressionAlgorithm
    compression_mode: Compression.CompressionMode
    def __init__(self, compression_algorithm: _Optional[_Union[Compression.CompressionAlgorithm, int, str]] = ..., compression_mode: _Optional[_Union[Compression.CompressionMode, int, str]] = ...) -> None: ...
class AIInference(_message.Message):
    class UnstructuredInference(_message.Message):
        parameters: _struct_pb2.Struct
        def __init__(self, parameters: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...
    endpoint: str
    unstructured_inference: AIInference.UnstructuredInference
    service_account_email: str
    def __init__(self, endpoint: _Optional[str] = ..., unstructured_inference: _Optional[_Union[AIInference.UnstructuredInference, _Mapping]] = ..., service_account_email: _Optional[str] = ...) -> None: ...
class MessageTransform(_message.Message):
    javascript_udf: JavaScriptUDF
    compression: Compression
    ai_inference: AIInference
    enabled: bool
    disabled: bool
    def __init__(self, javascript_udf: _Optional[_Union[JavaScriptUDF, _Mapping]] = ..., compression: _Optional[_Union[Compression, _Mapping]] = ..., ai_inference: _Optional[_Union[AIInference, _Mapping]] = ..., enabled: _Optional[bool] = ..., disabled: _Optional[bool] = ...) -> None: ...
class Topic(_message.Message):
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        STATE_UNSPECIFIED: _ClassVar[Topic.State]
        ACTIVE: _ClassVar[Topic.State]
        INGESTION_RESOURCE_ERROR: _ClassVar[Topic.State]
    STATE_UNSPECIFIED: Topic.State
    ACTIVE: Topic.State
    INGESTION_RESOURCE_ERROR: Topic.State
    class LabelsEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class TagsEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    name: str
    labels: _containers.ScalarMap[str, str]
    message_storage_policy: MessageStoragePolicy
    kms_key_name: str
    schema_settings: SchemaSettings
    satisfies_pzs: bool
    message_retention_duration: _duration_pb2.Duration
    state: Topic.State
    ingestion_data_source_settings: IngestionDataSourceSettings
    message_transforms: _containers.RepeatedCompositeFieldContainer[MessageTransform]
    tags: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., message_storage_policy: _Optional[_Union[MessageStoragePolicy, _Mapping]] = ..., kms_key_name: _Optional[str] = ..., schema_settings: _Optional[_Union[SchemaSettings, _Mapping]] = ..., satisfies_pzs: _Optional[bool] = ..., message_retention_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., state: _Optional[_Union[Topic.State, int, str]] = ..., ingestion_data_source_settings: _Optional[_Union[IngestionDataSourceSettings, _Mapping]] = ..., message_transforms: _Optional[_Iterable[_Union[MessageTransform, _Mapping]]] = ..., tags: _Optional[_Mapping[str, str]] = ...) -> None: ...
class PubsubMessage(_message.Message):
    class AttributesEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    data: bytes
    attributes: _containers.ScalarMap[str, str]
    message_id: str
    publish_time: _timestamp_pb2.Timestamp
    ordering_key: str
    def __init__(self, data: _Optional[bytes] = ..., attributes: _Optional[_Mapping[str, str]] = ..., message_id: _Optional[str] = ..., publish_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ordering_key: _Optional[str] = ...) -> None: ...
class GetTopicRequest(_message.Message):
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...
class UpdateTopicRequest(_message.Message):
    topic: Topic
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...
class PublishRequest(_message.Message):
    topic: str
    messages: _containers.RepeatedCompositeFieldContainer[PubsubMessage]
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[PubsubMessage, _Mapping]]] = ...) -> None: ...
class PublishResponse(_message.Message):
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, message_ids: _Optional[_Iterable[str]] = ...) -> None: ...
class ListTopicsRequest(_message.Message):
    project: str
    page_size: int
    page_token: str
    def __init__(self, project: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...
class ListTopicsResponse(_message.Message):
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    next_page_token: str
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
class ListTopicSubscriptionsRequest(_message.Message):
    topic: str
    page_size: int
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...
class ListTopicSubscriptionsResponse(_message.Message):
    subscriptions: _containers.RepeatedScalarFieldContainer[str]
    next_page_token: str
    def __init__(self, subscriptions: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
class ListTopicSnapshotsRequest(_message.Message):
    topic: str
    page_size: int
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...
class ListTopicSnapshotsResponse(_message.Message):
    snapshots: _containers.RepeatedScalarFieldContainer[str]
    next_page_token: str
    def __init__(self, snapshots: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
class DeleteTopicRequest(_message.Message):
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...
class DetachSubscriptionRequest(_message.Message):
    subscription: str
    def __init__(self, subscription: _Optional[str] = ...) -> None: ...
class DetachSubscriptionResponse(_message.Message):
    def __init__(self) -> None: ...
class Subscription(_message.Message):
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        STATE_UNSPECIFIED: _ClassVar[Subscription.State]
        ACTIVE: _ClassVar[Subscription.State]
        RESOURCE_ERROR: _ClassVar[Subscription.State]
    STATE_UNSPECIFIED: Subscription.State
    ACTIVE: Subscription.State
    RESOURCE_ERROR: Subscription.State
    class AnalyticsHubSubscriptionInfo(_message.Message):
        listing: str
        subscription: str
        def __init__(self, listing: _Optional[str] = ..., subscription: _Optional[str] = ...) -> None: ...
    class LabelsEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class TagsEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    name: str
    topic: str
    push_config: PushConfig
    bigquery_config: BigQueryConfig
    cloud_storage_config: CloudStorageConfig
    bigtable_config: BigtableConfig
    ack_deadline_seconds: int
    retain_acked_messages: bool
    message_retention_duration: _duration_pb2.Duration
    labels: _containers.ScalarMap[str, str]
    enable_message_ordering: bool
    expiration_policy: ExpirationPolicy
    filter: str
    dead_letter_policy: DeadLetterPolicy
    retry_policy: RetryPolicy
    detached: bool
    enable_exactly_once_delivery: bool
    topic_message_retention_duration: _duration_pb2.Duration
    state: Subscription.State
    analytics_hub_subscription_info: Subscription.AnalyticsHubSubscriptionInfo
    message_transforms: _containers.RepeatedCompositeFieldContainer[MessageTransform]
    tags: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., topic: _Optional[str] = ..., push_config: _Optional[_Union[PushConfig, _Mapping]] = ..., bigquery_config: _Optional[_Union[BigQueryConfig, _Mapping]] = ..., cloud_storage_config: _Optional[_Union[CloudStorageConfig, _Mapping]] = ..., bigtable_config: _Optional[_Union[BigtableConfig, _Mapping]] = ..., ack_deadline_seconds: _Optional[int] = ..., retain_acked_messages: _Optional[bool] = ..., message_retention_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., enable_message_ordering: _Optional[bool] = ..., expiration_policy: _Optional[_Union[ExpirationPolicy, _Mapping]] = ..., filter: _Optional[str] = ..., dead_letter_policy: _Optional[_Union[DeadLetterPolicy, _Mapping]] = ..., retry_policy: _Optional[_Union[RetryPolicy, _Mapping]] = ..., detached: _Optional[bool] = ..., enable_exactly_once_delivery: _Optional[bool] = ..., topic_message_retention_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., state: _Optional[_Union[Subscription.State, int, str]] = ..., analytics_hub_subscription_info: _Optional[_Union[Subscription.AnalyticsHubSubscriptionInfo, _Mapping]] = ..., message_transforms: _Optional[_Iterable[_Union[MessageTransform, _Mapping]]] = ..., tags: _Optional[_Mapping[str, str]] = ...) -> None: ...
class RetryPolicy(_message.Message):
    minimum_backoff: _duration_pb2.Duration
    maximum_backoff: _duration_pb2.Duration
    def __init__(self, minimum_backoff: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., maximum_backoff: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
class DeadLetterPolicy(_message.Message):
    dead_letter_topic: str
    max_delivery_attempts: int
    def __init__(self, dead_letter_topic: _Optional[str] = ..., max_delivery_attempts: _Optional[int] = ...) -> None: ...
class ExpirationPolicy(_message.Message):
    ttl: _duration_pb2.Duration
    def __init__(self, ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
class PushConfig(_message.Message):
    class OidcToken(_message.Message):
        service_account_email: str
        audience: str
        def __init__(self, service_account_email: _Optional[str] = ..., audience: _Optional[str] = ...) -> None: ...
    class PubsubWrapper(_message.Message):
        def __init__(self) -> None: ...
    class NoWrapper(_message.Message):
        write_metadata: bool
        def __init__(self, write_metadata: _Optional[bool] = ...) -> None: ...
    class AttributesEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    push_endpoint: str
    attributes: _containers.ScalarMap[str, str]
    oidc_token: PushConfig.OidcToken
    pubsub_wrapper: PushConfig.PubsubWrapper
    no_wrapper: PushConfig.NoWrapper
    def __init__(self, push_endpoint: _Optional[str] = ..., attributes: _Optional[_Mapping[str, str]] = ..., oidc_token: _Optional[_Union[PushConfig.OidcToken, _Mapping]] = ..., pubsub_wrapper: _Optional[_Union[PushConfig.PubsubWrapper, _Mapping]] = ..., no_wrapper: _Optional[_Union[PushConfig.NoWrapper, _Mapping]] = ...) -> None: ...
class BigQueryConfig(_message.Message):
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        STATE_UNSPECIFIED: _ClassVar[BigQueryConfig.State]
        ACTIVE: _ClassVar[BigQueryConfig.State]
        PERMISSION_DENIED: _ClassVar[BigQueryConfig.State]
        NOT_FOUND: _ClassVar[BigQueryConfig.State]
        SCHEMA_MISMATCH: _ClassVar[BigQueryConfig.State]
        IN_TRANSIT_LOCATION_RESTRICTION: _ClassVar[BigQueryConfig.State]
        VERTEX_AI_LOCATION_RESTRICTION: _ClassVar[BigQueryConfig.State]
    STATE_UNSPECIFIED: BigQueryConfig.State
    ACTIVE: BigQueryConfig.State
    PERMISSION_DENIED: BigQueryConfig.State
    NOT_FOUND: BigQueryConfig.State
    SCHEMA_MISMATCH: BigQueryConfig.State
    IN_TRANSIT_LOCATION_RESTRICTION: BigQueryConfig.State
    VERTEX_AI_LOCATION_RESTRICTION: BigQueryConfig.State
    table: str
    use_topic_schema: bool
    write_metadata: bool
    drop_unknown_fields: bool
    state: BigQueryConfig.State
    use_table_schema: bool
    service_account_email: str
    def __init__(self, table: _Optional[str] = ..., use_topic_schema: _Optional[bool] = ..., write_metadata: _Optional[bool] = ..., drop_unknown_fields: _Optional[bool] = ..., state: _Optional[_Union[BigQueryConfig.State, int, str]] = ..., use_table_schema: _Optional[bool] = ..., service_account_email: _Optional[str] = ...) -> None: ...
class BigtableConfig(_message.Message):
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        STATE_UNSPECIFIED: _ClassVar[BigtableConfig.State]
        ACTIVE: _ClassVar[BigtableConfig.State]
        NOT_FOUND: _ClassVar[BigtableConfig.State]
        APP_PROFILE_MISCONFIGURED: _ClassVar[BigtableConfig.State]
        PERMISSION_DENIED: _ClassVar[BigtableConfig.State]
        SCHEMA_MISMATCH: _ClassVar[BigtableConfig.State]
        IN_TRANSIT_LOCATION_RESTRICTION: _ClassVar[BigtableConfig.State]
        VERTEX_AI_LOCATION_RESTRICTION: _ClassVar[BigtableConfig.State]
    STATE_UNSPECIFIED: BigtableConfig.State
    ACTIVE: BigtableConfig.State
    NOT_FOUND: BigtableConfig.State
    APP_PROFILE_MISCONFIGURED: BigtableConfig.State
    PERMISSION_DENIED: BigtableConfig.State
    SCHEMA_MISMATCH: BigtableConfig.State
    IN_TRANSIT_LOCATION_RESTRICTION: BigtableConfig.State
    VERTEX_AI_LOCATION_RESTRICTION: BigtableConfig.State
    class ColumnFamilyMapping(_message.Message):
        class RowKeySchema(_message.Message):
            def __init__(self) -> None: ...
        class DelimitedKey(_message.Message):
            key_fields: _containers.RepeatedScalarFieldContainer[str]
            delimiter: bytes
            def __init__(self, key_fields: _Optional[_Iterable[str]] = ..., delimiter: _Optional[bytes] = ...) -> None: ...
        row_key_schema: BigtableConfig.ColumnFamilyMapping.RowKeySchema
        delimited_key: BigtableConfig.ColumnFamilyMapping.DelimitedKey
        def __init__(self, row_key_schema: _Optional[_Union[BigtableConfig.ColumnFamilyMapping.RowKeySchema, _Mapping]] = ..., delimited_key: _Optional[_Union[BigtableConfig.ColumnFamilyMapping.DelimitedKey, _Mapping]] = ...) -> None: ...
    table: str
    app_profile_id: str
    service_account_email: str
    write_metadata: bool
    column_family_mapping: BigtableConfig.ColumnFamilyMapping
    state: BigtableConfig.State
    def __init__(self, table: _Optional[str] = ..., app_profile_id: _Optional[str] = ..., service_account_email: _Optional[str] = ..., write_metadata: _Optional[bool] = ..., column_family_mapping: _Optional[_Union[BigtableConfig.ColumnFamilyMapping, _Mapping]] = ..., state: _Optional[_Union[BigtableConfig.State, int, str]] = ...) -> None: ...
class CloudStorageConfig(_message.Message):
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        STATE_UNSPECIFIED: _ClassVar[CloudStorageConfig.State]
        ACTIVE: _ClassVar[CloudStorageConfig.State]
        PERMISSION_DENIED: _ClassVar[CloudStorageConfig.State]
        NOT_FOUND: _ClassVar[CloudStorageConfig.State]
        IN_TRANSIT_LOCATION_RESTRICTION: _ClassVar[CloudStorageConfig.State]
        SCHEMA_MISMATCH: _ClassVar[CloudStorageConfig.State]
        VERTEX_AI_LOCATION_RESTRICTION: _ClassVar[CloudStorageConfig.State]
    STATE_UNSPECIFIED: CloudStorageConfig.State
    ACTIVE: CloudStorageConfig.State
    PERMISSION_DENIED: CloudStorageConfig.State
    NOT_FOUND: CloudStorageConfig.State
    IN_TRANSIT_LOCATION_RESTRICTION: CloudStorageConfig.State
    SCHEMA_MISMATCH: CloudStorageConfig.State
    VERTEX_AI_LOCATION_RESTRICTION: CloudStorageConfig.State
    class TextConfig(_message.Message):
        def __init__(self) -> None: ...
    class AvroConfig(_message.Message):
        write_metadata: bool
        use_topic_schema: bool
        def __init__(self, write_metadata: _Optional[bool] = ..., use_topic_schema: _Optional[bool] = ...) -> None: ...
    bucket: str
    filename_prefix: str
    filename_suffix: str
    filename_datetime_format: str
    text_config: CloudStorageConfig.TextConfig
    avro_config: CloudStorageConfig.AvroConfig
    max_duration: _duration_pb2.Duration
    max_bytes: int
    max_messages: int
    state: CloudStorageConfig.State
    service_account_email: str
    def __init__(self, bucket: _Optional[str] = ..., filename_prefix: _Optional[str] = ..., filename_suffix: _Optional[str] = ..., filename_datetime_format: _Optional[str] = ..., text_config: _Optional[_Union[CloudStorageConfig.TextConfig, _Mapping]] = ..., avro_config: _Optional[_Union[CloudStorageConfig.AvroConfig, _Mapping]] = ..., max_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_bytes: _Optional[int] = ..., max_messages: _Optional[int] = ..., state: _Optional[_Union[CloudStorageConfig.State, int, str]] = ..., service_account_email: _Optional[str] = ...) -> None: ...
class ReceivedMessage(_message.Message):
    ack_id: str
    message: PubsubMessage
    delivery_attempt: int
    def __init__(self, ack_id: _Optional[str] = ..., message: _Optional[_Union[PubsubMessage, _Mapping]] = ..., delivery_attempt: _Optional[int] = ...) -> None: ...
class GetSubscriptionRequest(_message.Message):
    subscription: str
    def __init__(self, subscription: _Optional[str] = ...) -> None: ...
class UpdateSubscriptionRequest(_message.Message):
    subscription: Subscription
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, subscription: _Optional[_Union[Subscription, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...
class ListSubscriptionsRequest(_message.Message):
    project: str
    page_size: int
    page_token: str
    def __init__(self, project: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...
class ListSubscriptionsResponse(_message.Message):
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    next_page_token: str
    def __init__(self, subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
class DeleteSubscriptionRequest(_message.Message):
    subscription: str
    def __init__(self, subscription: _Optional[str] = ...) -> None: ...
class ModifyPushConfigRequest(_message.Message):
    subscription: str
    push_config: PushConfig
    def __init__(self, subscription: _Optional[str] = ..., push_config: _Optional[_Union[PushConfig, _Mapping]] = ...) -> None: ...
class PullRequest(_message.Message):
    subscription: str
    return_immediately: bool
    max_messages: int
    def __init__(self, subscription: _Optional[str] = ..., return_immediately: _Optional[bool] = ..., max_messages: _Optional[int] = ...) -> None: ...
class PullResponse(_message.Message):
    received_messages: _containers.RepeatedCompositeFieldContainer[ReceivedMessage]
    def __init__(self, received_messages: _Optional[_Iterable[_Union[ReceivedMessage, _Mapping]]] = ...) -> None: ...
class ModifyAckDeadlineRequest(_message.Message):
    subscription: str
    ack_ids: _containers.RepeatedScalarFieldContainer[str]
    ack_deadline_seconds: int
    def __init__(self, subscription: _Optional[str] = ..., ack_ids: _Optional[_Iterable[str]] = ..., ack_deadline_seconds: _Optional[int] = ...) -> None: ...
class AcknowledgeRequest(_message.Message):
    subscription: str
    ack_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, subscription: _Optional[str] = ..., ack_ids: _Optional[_Iterable[str]] = ...) -> None: ...
class StreamingPullRequest(_message.Message):
    subscription: str
    ack_ids: _containers.RepeatedScalarFieldContainer[str]
    modify_deadline_seconds: _containers.RepeatedScalarFieldContainer[int]
    modify_deadline_ack_ids: _containers.RepeatedScalarFieldContainer[str]
    stream_ack_deadline_seconds: int
    client_id: str
    max_outstanding_messages: int
    max_outstanding_bytes: int
    protocol_version: int
    def __init__(self, subscription: _Optional[str] = ..., ack_ids: _Optional[_Iterable[str]] = ..., modify_deadline_seconds: _Optional[_Iterable[int]] = ..., modify_deadline_ack_ids: _Optional[_Iterable[str]] = ..., stream_ack_deadline_seconds: _Optional[int] = ..., client_id: _Optional[str] = ..., max_outstanding_messages: _Optional[int] = ..., max_outstanding_bytes: _Optional[int] = ..., protocol_version: _Optional[int] = ...) -> None: ...
class StreamingPullResponse(_message.Message):
    class AcknowledgeConfirmation(_message.Message):
        ack_ids: _containers.RepeatedScalarFieldContainer[str]
        invalid_ack_ids: _containers.RepeatedScalarFieldContainer[str]
        unordered_ack_ids: _containers.RepeatedScalarFieldContainer[str]
        temporary_failed_ack_ids: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, ack_ids: _Optional[_Iterable[str]] = ..., invalid_ack_ids: _Optional[_Iterable[str]] = ..., unordered_ack_ids: _Optional[_Iterable[str]] = ..., temporary_failed_ack_ids: _Optional[_Iterable[str]] = ...) -> None: ...
    class ModifyAckDeadlineConfirmation(_message.Message):
        ack_ids: _containers.RepeatedScalarFieldContainer[str]
        invalid_ack_ids: _containers.RepeatedScalarFieldContainer[str]
        temporary_failed_ack_ids: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, ack_ids: _Optional[_Iterable[str]] = ..., invalid_ack_ids: _Optional[_Iterable[str]] = ..., temporary_failed_ack_ids: _Optional[_Iterable[str]] = ...) -> None: ...
    class SubscriptionProperties(_message.Message):
        exactly_once_delivery_enabled: bool
        message_ordering_enabled: bool
        def __init__(self, exactly_once_delivery_enabled: _Optional[bool] = ..., message_ordering_enabled: _Optional[bool] = ...) -> None: ...
    received_messages: _containers.RepeatedCompositeFieldContainer[ReceivedMessage]
    acknowledge_confirmation: StreamingPullResponse.AcknowledgeConfirmation
    modify_ack_deadline_confirmation: StreamingPullResponse.ModifyAckDeadlineConfirmation
    subscription_properties: StreamingPullResponse.SubscriptionProperties
    def __init__(self, received_messages: _Optional[_Iterable[_Union[ReceivedMessage, _Mapping]]] = ..., acknowledge_confirmation: _Optional[_Union[StreamingPullResponse.AcknowledgeConfirmation, _Mapping]] = ..., modify_ack_deadline_confirmation: _Optional[_Union[StreamingPullResponse.ModifyAckDeadlineConfirmation, _Mapping]] = ..., subscription_properties: _Optional[_Union[StreamingPullResponse.SubscriptionProperties, _Mapping]] = ...) -> None: ...
class CreateSnapshotRequest(_message.Message):
    class LabelsEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class TagsEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    name: str
    subscription: str
    labels: _containers.ScalarMap[str, str]
    tags: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., subscription: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., tags: _Optional[_Mapping[str, str]] = ...) -> None: ...
class UpdateSnapshotRequest(_message.Message):
    snapshot: Snapshot
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...
class Snapshot(_message.Message):
    class LabelsEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    name: str
    topic: str
    expire_time: _timestamp_pb2.Timestamp
    labels: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., topic: _Optional[str] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...
class GetSnapshotRequest(_message.Message):
    snapshot: str
    def __init__(self, snapshot: _Optional[str] = ...) -> None: ...
class ListSnapshotsRequest(_message.Message):
    project: str
    page_size: int
    page_token: str
    def __init__(self, project: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...
class ListSnapshotsResponse(_message.Message):
    snapshots: _containers.RepeatedCompositeFieldContainer[Snapshot]
    next_page_token: str
    def __init__(self, snapshots: _Optional[_Iterable[_Union[Snapshot, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
class DeleteSnapshotRequest(_message.Message):
    snapshot: str
    def __init__(self, snapshot: _Optional[str] = ...) -> None: ...
class SeekRequest(_message.Message):
    subscription: str
    time: _timestamp_pb2.Timestamp
    snapshot: str
    def __init__(self, subscription: _Optional[str] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., snapshot: _Optional[str] = ...) -> None: ...
class SeekResponse(_message.Message):
    def __init__(self) -> None: ...
class PubsubClientTelemetry(_message.Message):
    class PublishOperation(_message.Message):
        hedged_attempt_count: int
        publish_start_time: _timestamp_pb2.Timestamp
        def __init__(self, hedged_attempt_count: _Optional[int] = ..., publish_start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
    publish_operation: PubsubClientTelemetry.PublishOperation
    def __init__(self, publish_operation: _Optional[_Union[PubsubClientTelemetry.PublishOperation, _Mapping]] = ...) -> None: ...
import datetime
from syncpoint.wire.protobuf.stubs import google_api
from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
class SchemaView(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    SCHEMA_VIEW_UNSPECIFIED: _ClassVar[SchemaView]
    BASIC: _ClassVar[SchemaView]
    FULL: _ClassVar[SchemaView]
class Encoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    ENCODING_UNSPECIFIED: _ClassVar[Encoding]
    JSON: _ClassVar[Encoding]
    BINARY: _ClassVar[Encoding]
SCHEMA_VIEW_UNSPECIFIED: SchemaView
BASIC: SchemaView
FULL: SchemaView
ENCODING_UNSPECIFIED: Encoding
JSON: Encoding
BINARY: Encoding
class Schema(_message.Message):
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        TYPE_UNSPECIFIED: _ClassVar[Schema.Type]
        PROTOCOL_BUFFER: _ClassVar[Schema.Type]
        AVRO: _ClassVar[Schema.Type]
    TYPE_UNSPECIFIED: Schema.Type
    PROTOCOL_BUFFER: Schema.Type
    AVRO: Schema.Type
    name: str
    type: Schema.Type
    definition: str
    compiled_proto_schema: CompiledProtoSchema
    revision_id: str
    revision_create_time: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[Schema.Type, int, str]] = ..., definition: _Optional[str] = ..., compiled_proto_schema: _Optional[_Union[CompiledProtoSchema, _Mapping]] = ..., revision_id: _Optional[str] = ..., revision_create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
class CreateSchemaRequest(_message.Message):
    parent: str
    schema: Schema
    schema_id: str
    def __init__(self, parent: _Optional[str] = ..., schema: _Optional[_Union[Schema, _Mapping]] = ..., schema_id: _Optional[str] = ...) -> None: ...
class GetSchemaRequest(_message.Message):
    name: str
    view: SchemaView
    def __init__(self, name: _Optional[str] = ..., view: _Optional[_Union[SchemaView, int, str]] = ...) -> None: ...
class ListSchemasRequest(_message.Message):
    parent: str
    view: SchemaView
    page_size: int
    page_token: str
    def __init__(self, parent: _Optional[str] = ..., view: _Optional[_Union[SchemaView, int, str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...
class ListSchemasResponse(_message.Message):
    schemas: _containers.RepeatedCompositeFieldContainer[Schema]
    next_page_token: str
    def __init__(self, schemas: _Optional[_Iterable[_Union[Schema, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
class ListSchemaRevisionsRequest(_message.Message):
    name: str
    view: SchemaView
    page_size: int
    page_token: str
    def __init__(self, name: _Optional[str] = ..., view: _Optional[_Union[SchemaView, int, str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...
class ListSchemaRevisionsResponse(_message.Message):
    schemas: _containers.RepeatedCompositeFieldContainer[Schema]
    next_page_token: str
    def __init__(self, schemas: _Optional[_Iterable[_Union[Schema, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
class CommitSchemaRequest(_message.Message):
    name: str
    schema: Schema
    def __init__(self, name: _Optional[str] = ..., schema: _Optional[_Union[Schema, _Mapping]] = ...) -> None: ...
class RollbackSchemaRequest(_message.Message):
    name: str
    revision_id: str
    def __init__(self, name: _Optional[str] = ..., revision_id: _Optional[str] = ...) -> None: ...
class DeleteSchemaRevisionRequest(_message.Message):
    name: str
    revision_id: str
    def __init__(self, name: _Optional[str] = ..., revision_id: _Optional[str] = ...) -> None: ...
class DeleteSchemaRequest(_message.Message):
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...
class ValidateSchemaRequest(_message.Message):
    parent: str
    schema: Schema
    def __init__(self, parent: _Optional[str] = ..., schema: _Optional[_Union[Schema, _Mapping]] = ...) -> None: ...
class ValidateSchemaResponse(_message.Message):
    def __init__(self) -> None: ...
class ValidateMessageRequest(_message.Message):
    parent: str
    name: str
    schema: Schema
    message: bytes
    encoding: Encoding
    def __init__(self, parent: _Optional[str] = ..., name: _Optional[str] = ..., schema: _Optional[_Union[Schema, _Mapping]] = ..., message: _Optional[bytes] = ..., encoding: _Optional[_Union[Encoding, int, str]] = ...) -> None: ...
class ValidateMessageResponse(_message.Message):
    def __init__(self) -> None: ...
class CompiledProtoSchema(_message.Message):
    root_message: str
    compiled_bytes: bytes
    def __init__(self, root_message: _Optional[str] = ..., compiled_bytes: _Optional[bytes] = ...) -> None: ...
