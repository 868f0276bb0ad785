"""Exports and sources: settings are checked and come back; what is not there is said in the states."""

from __future__ import annotations

from typing import Any

import pytest

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument
from syncpoint.front.api.exports import EXPORTS, is_exported
from syncpoint.front.api.subscriber import check_pulled
from syncpoint.wire.protobuf.messages import pubsub

T, S = "projects/p/topics/t-1", "projects/p/subscriptions/s-1"
EMAIL = "writer@project.example"
Storage, Topic = pubsub.CloudStorageConfig, pubsub.Topic

LEGAL = [
    ("bigquery_config", {"table": "p-1.data_set.my-table", "use_table_schema": True, "service_account_email": EMAIL}),
    ("bigquery_config", {"table": "example.com:p.d.t", "use_topic_schema": True, "drop_unknown_fields": True}),
    ("bigtable_config", {"table": "projects/p/instances/i/tables/t", "app_profile_id": "a", "write_metadata": True}),
    ("cloud_storage_config", {"bucket": "a-bucket.of_ours", "filename_prefix": "x/", "filename_suffix": ".avro",
                              "avro_config": {"write_metadata": True}, "max_duration": {"seconds": 60},
                              "max_bytes": 1000, "max_messages": 1000}),
    ("cloud_storage_config", {"bucket": "bucket", "text_config": {}, "max_duration": {"seconds": 600},
                              "max_bytes": 10 << 30}),
]  # fmt: skip


def create(service: Any, **fields: Any) -> Any:
    service.create_topic(pubsub.Topic(name=T))
    return service.create_subscription(pubsub.Subscription(**{"name": S, "topic": T, **fields}))


def get(service: Any) -> Any:
    return service.get_subscription(pubsub.GetSubscriptionRequest(subscription=S))


def update(service: Any, path: str, **fields: Any) -> Any:
    request = pubsub.UpdateSubscriptionRequest(subscription={"name": S, **fields}, update_mask={"paths": [path]})
    return service.update_subscription(request)


@pytest.mark.parametrize(("field", "value"), LEGAL)
def test_an_export_comes_back_and_says_that_its_end_is_not_found(
    service: Any, plane: Any, field: str, value: dict[str, Any]
) -> None:
    made = create(service, **{field: {**value, "state": 1}})
    config = getattr(made, field)
    assert made.state == pubsub.Subscription.RESOURCE_ERROR
    assert config.state == type(config).NOT_FOUND
    config.ClearField("state")
    assert config == type(config)(**value)
    assert getattr(get(service), field).state == type(config).NOT_FOUND
    record = plane.catalog.subscription(S)
    assert is_exported(record)
    with pytest.raises(FailedPrecondition, match="not supported for this subscription type"):
        check_pulled(record, "pushed")
    assert update(service, field).state == pubsub.Subscription.ACTIVE
    assert not is_exported(plane.catalog.subscription(S))
    check_pulled(plane.catalog.subscription(S), "pushed")
    assert update(service, field, **{field: value}).state == pubsub.Subscription.RESOURCE_ERROR


def test_defaults_of_an_export_to_files(service: Any) -> None:
    made = create(service, cloud_storage_config={"bucket": "bucket"}).cloud_storage_config
    expected = Storage(bucket="bucket", text_config={}, max_duration={"seconds": 300}, state=Storage.NOT_FOUND)
    assert made == expected


def test_an_empty_message_exports_nothing(service: Any) -> None:
    made = create(service, **{field: {} for field in EXPORTS})
    assert made.state == pubsub.Subscription.ACTIVE
    assert not any(made.HasField(field) for field in EXPORTS)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"bigquery_config": {"table": "d.t"}}, "Invalid BigQuery table"),
        ({"bigquery_config": {"write_metadata": True}}, "Invalid BigQuery table"),
        ({"bigquery_config": {"table": "p.d.t", "use_topic_schema": True, "use_table_schema": True}}, "At most one"),
        ({"bigquery_config": {"table": "p.d.t", "service_account_email": "x"}}, "service_account_email"),
        ({"bigtable_config": {"table": "t"}}, "Invalid Bigtable table"),
        ({"cloud_storage_config": {"bucket": "gs://bucket"}}, "Invalid bucket"),
        ({"cloud_storage_config": {"bucket": "ab"}}, "Invalid bucket"),
        ({"cloud_storage_config": {"max_bytes": 1000}}, "Invalid bucket"),
        ({"cloud_storage_config": {"bucket": "bucket", "filename_suffix": "a/"}}, "filename_suffix"),
        ({"cloud_storage_config": {"bucket": "bucket", "filename_prefix": "a" * 1025}}, "filename_prefix"),
        ({"cloud_storage_config": {"bucket": "bucket", "filename_prefix": "a\n"}}, "filename_prefix"),
        ({"cloud_storage_config": {"bucket": "bucket", "max_duration": {"seconds": 59}}}, "max_duration is too small"),
        ({"cloud_storage_config": {"bucket": "bucket", "max_duration": {"seconds": 601}}}, "max_duration is too large"),
        ({"cloud_storage_config": {"bucket": "bucket", "max_bytes": 999}}, "max_bytes is too small"),
        ({"cloud_storage_config": {"bucket": "bucket", "max_bytes": (10 << 30) + 1}}, "max_bytes is too large"),
        ({"cloud_storage_config": {"bucket": "bucket", "max_messages": 999}}, "max_messages is too small"),
        ({"bigquery_config": {"table": "p.d.t"}, "cloud_storage_config": {"bucket": "bucket"}}, "At most one of"),
        ({"bigquery_config": {"table": "p.d.t"}, "push_config": {"push_endpoint": "https://e.example"}},
         "At most one of"),
    ],
)  # fmt: skip
def test_exports_that_are_refused(service: Any, plane: Any, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        create(service, **fields)
    assert plane.catalog.subscription(S) is None


SOURCES = [
    ("aws_kinesis", {"stream_arn": "a", "consumer_arn": "b", "aws_role_arn": "c", "gcp_service_account": EMAIL},
     "STREAM_NOT_FOUND"),
    ("cloud_storage", {"bucket": "bucket", "avro_format": {}, "match_glob": "**", "minimum_object_create_time":
                       {"seconds": 5}}, "BUCKET_NOT_FOUND"),
    ("cloud_storage", {"bucket": "bucket", "text_format": {"delimiter": ";"}}, "BUCKET_NOT_FOUND"),
    ("azure_event_hubs", {"resource_group": "r", "namespace": "n", "event_hub": "e", "client_id": "c",
                          "tenant_id": "t", "subscription_id": "s", "gcp_service_account": EMAIL},
     "NAMESPACE_NOT_FOUND"),
    ("aws_msk", {"cluster_arn": "a", "topic": "t", "aws_role_arn": "r", "gcp_service_account": EMAIL},
     "CLUSTER_NOT_FOUND"),
    ("confluent_cloud", {"bootstrap_server": "b:9", "cluster_id": "c", "topic": "t", "identity_pool_id": "i",
                         "gcp_service_account": EMAIL}, "UNREACHABLE_BOOTSTRAP_SERVER"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "state"), SOURCES)
def test_a_source_comes_back_and_says_that_it_is_not_there(
    service: Any, name: str, value: dict[str, Any], state: str
) -> None:
    settings = {name: {**value, "state": 1}, "platform_logs_settings": {"severity": "INFO"}}
    made = service.create_topic(Topic(name=T, ingestion_data_source_settings=settings))
    source = getattr(made.ingestion_data_source_settings, name)
    assert made.state == Topic.INGESTION_RESOURCE_ERROR
    assert type(source).State.Name(source.state) == state
    source.ClearField("state")
    assert source == type(source)(**value)
    assert service.get_topic(pubsub.GetTopicRequest(topic=T)).state == Topic.INGESTION_RESOURCE_ERROR
    path = "ingestion_data_source_settings"
    request = pubsub.UpdateTopicRequest(topic={"name": T}, update_mask={"paths": [path]})
    assert service.update_topic(request).state == Topic.ACTIVE
    request.topic.ingestion_data_source_settings.CopyFrom(made.ingestion_data_source_settings)
    assert service.update_topic(request).state == Topic.INGESTION_RESOURCE_ERROR


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"aws_kinesis": {"stream_arn": "x"}}, "Missing required fields for AwsKinesis ingestion settings:"
         " consumer_arn, aws_role_arn, gcp_service_account"),
        ({"aws_msk": {}}, "Missing required fields for AwsMsk ingestion settings"),
        ({"azure_event_hubs": {"namespace": "n"}}, "Missing required fields for AzureEventHubs"),
        ({"confluent_cloud": {"topic": "t"}}, "Missing required fields for ConfluentCloud"),
        ({"cloud_storage": {"match_glob": "*"}}, "Missing required fields for CloudStorage ingestion settings: bucket"),
        ({"cloud_storage": {"bucket": "gs://x"}}, "Invalid bucket"),
        ({"cloud_storage": {"bucket": "bucket", "text_format": {"delimiter": "ab"}}}, "single character"),
    ],
)  # fmt: skip
def test_sources_that_are_refused(service: Any, plane: Any, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        service.create_topic(Topic(name=T, ingestion_data_source_settings=settings))
    assert plane.catalog.topic(T) is None


def test_logs_alone_feed_nothing(service: Any) -> None:
    settings = {"platform_logs_settings": {"severity": "ERROR"}}
    made = service.create_topic(Topic(name=T, ingestion_data_source_settings=settings))
    assert made.state == Topic.ACTIVE
    assert made.ingestion_data_source_settings == pubsub.IngestionDataSourceSettings(**settings)
