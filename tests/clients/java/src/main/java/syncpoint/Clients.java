package syncpoint;

import com.google.api.gax.batching.FlowControlSettings;
import com.google.api.gax.core.NoCredentialsProvider;
import com.google.api.gax.grpc.GrpcTransportChannel;
import com.google.api.gax.rpc.AlreadyExistsException;
import com.google.api.gax.rpc.ApiException;
import com.google.api.gax.rpc.FailedPreconditionException;
import com.google.api.gax.rpc.FixedTransportChannelProvider;
import com.google.api.gax.rpc.InvalidArgumentException;
import com.google.api.gax.rpc.NotFoundException;
import com.google.api.gax.rpc.TransportChannelProvider;
import com.google.cloud.pubsub.v1.AckReplyConsumer;
import com.google.cloud.pubsub.v1.AckReplyConsumerWithResponse;
import com.google.cloud.pubsub.v1.AckResponse;
import com.google.cloud.pubsub.v1.MessageReceiver;
import com.google.cloud.pubsub.v1.MessageReceiverWithAckResponse;
import com.google.cloud.pubsub.v1.Publisher;
import com.google.cloud.pubsub.v1.SchemaServiceClient;
import com.google.cloud.pubsub.v1.SchemaServiceSettings;
import com.google.cloud.pubsub.v1.Subscriber;
import com.google.cloud.pubsub.v1.SubscriptionAdminClient;
import com.google.cloud.pubsub.v1.SubscriptionAdminSettings;
import com.google.cloud.pubsub.v1.TopicAdminClient;
import com.google.cloud.pubsub.v1.TopicAdminSettings;
import com.google.gson.Gson;
import com.google.iam.v1.Binding;
import com.google.iam.v1.GetIamPolicyRequest;
import com.google.iam.v1.Policy;
import com.google.iam.v1.SetIamPolicyRequest;
import com.google.iam.v1.TestIamPermissionsRequest;
import com.google.protobuf.ByteString;
import com.google.protobuf.Duration;
import com.google.protobuf.FieldMask;
import com.google.protobuf.Timestamp;
import com.google.pubsub.v1.DeadLetterPolicy;
import com.google.pubsub.v1.DetachSubscriptionRequest;
import com.google.pubsub.v1.Encoding;
import com.google.pubsub.v1.JavaScriptUDF;
import com.google.pubsub.v1.ListSchemaRevisionsRequest;
import com.google.pubsub.v1.MessageTransform;
import com.google.pubsub.v1.PubsubMessage;
import com.google.pubsub.v1.PullRequest;
import com.google.pubsub.v1.PushConfig;
import com.google.pubsub.v1.ReceivedMessage;
import com.google.pubsub.v1.Schema;
import com.google.pubsub.v1.SchemaSettings;
import com.google.pubsub.v1.SchemaView;
import com.google.pubsub.v1.SeekRequest;
import com.google.pubsub.v1.Subscription;
import com.google.pubsub.v1.Topic;
import com.google.pubsub.v1.UpdateSubscriptionRequest;
import com.google.pubsub.v1.UpdateTopicRequest;
import com.google.pubsub.v1.ValidateMessageRequest;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;

/**
 * The official Java client against a running Syncpoint: one JSON line per scenario on stdout.
 *
 * <p>PUBSUB_EMULATOR_HOST names the server. A line {"ask": "restart"} asks the driver to kill and restart the server,
 * {"ask": "rolling"} to restart all its processes in turn; it answers with a line on stdin when the server is back.
 */
public final class Clients {
  private interface Scenario {
    void run() throws Exception;
  }

  private interface Call {
    void run() throws Exception;
  }

  private static final String PROJECT =
      System.getenv().getOrDefault("CLIENT_PROJECT", "p" + Long.toHexString(System.nanoTime()));
  private static final int SECONDS = 60;

  /** For scenarios in which the server goes away: the client's own pauses between attempts grow to 60 s. */
  private static final int OUTAGE_SECONDS = 240;

  private static final String DEFINITION =
      "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"n\",\"type\":\"int\"}]}";


  private final NoCredentialsProvider nobody = NoCredentialsProvider.create();
  private final BufferedReader stdin = new BufferedReader(new InputStreamReader(System.in));
  private final TransportChannelProvider channel;
  private final TopicAdminClient topics;
  private final SubscriptionAdminClient subs;
  private final SchemaServiceClient schemas;
  private String prefix;
  private long end;

  private Clients() throws Exception {
    ManagedChannel made =
        ManagedChannelBuilder.forTarget(System.getenv("PUBSUB_EMULATOR_HOST")).usePlaintext().build();
    channel = FixedTransportChannelProvider.create(GrpcTransportChannel.create(made));
    topics =
        TopicAdminClient.create(
            TopicAdminSettings.newBuilder()
                .setTransportChannelProvider(channel)
                .setCredentialsProvider(nobody)
                .build());
    subs =
        SubscriptionAdminClient.create(
            SubscriptionAdminSettings.newBuilder()
                .setTransportChannelProvider(channel)
                .setCredentialsProvider(nobody)
                .build());
    schemas =
        SchemaServiceClient.create(
            SchemaServiceSettings.newBuilder()
                .setTransportChannelProvider(channel)
                .setCredentialsProvider(nobody)
                .build());
  }

  private static void want(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }

  private static void refused(Class<? extends ApiException> kind, Call call) throws Exception {
    try {
      call.run();
    } catch (ApiException error) {
      want(kind.isInstance(error), error + " instead of " + kind.getSimpleName());
      return;
    }
    throw new AssertionError("no " + kind.getSimpleName());
  }

  private String name(String kind, String suffix) {
    return "projects/" + PROJECT + "/" + kind + "/" + prefix + "-" + suffix;
  }

  private Topic.Builder topic(String suffix) {
    return Topic.newBuilder().setName(name("topics", suffix));
  }

  private Subscription.Builder sub(String topic, String suffix) {
    return Subscription.newBuilder()
        .setName(name("subscriptions", suffix))
        .setTopic(topic)
        .setAckDeadlineSeconds(10);
  }

  private String made(Topic.Builder topic) {
    return topics.createTopic(topic.build()).getName();
  }

  private String made(Subscription.Builder sub) {
    return subs.createSubscription(sub.build()).getName();
  }

  private static PubsubMessage message(String body) {
    return PubsubMessage.newBuilder().setData(ByteString.copyFromUtf8(body)).build();
  }

  private Publisher publisher(String topic, boolean ordered) throws Exception {
    return Publisher.newBuilder(topic)
        .setChannelProvider(channel)
        .setCredentialsProvider(nobody)
        .setEnableMessageOrdering(ordered)
        .build();
  }

  private List<String> publish(String topic, boolean ordered, List<PubsubMessage> messages) throws Exception {
    Publisher publisher = publisher(topic, ordered);
    try {
      List<Future<String>> results = new ArrayList<>();
      for (PubsubMessage message : messages) {
        results.add(publisher.publish(message));
      }
      List<String> ids = new ArrayList<>();
      for (Future<String> result : results) {
        ids.add(result.get(SECONDS, TimeUnit.SECONDS));
      }
      return ids;
    } finally {
      publisher.shutdown();
      publisher.awaitTermination(5, TimeUnit.SECONDS);
    }
  }

  private List<String> bodies(String topic, String... bodies) throws Exception {
    List<PubsubMessage> messages = new ArrayList<>();
    for (String body : bodies) {
      messages.add(message(body));
    }
    return publish(topic, false, messages);
  }

  private List<ReceivedMessage> pullOnce(String sub, long seconds) {
    long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
    while (true) {
      PullRequest request =
          PullRequest.newBuilder().setSubscription(sub).setMaxMessages(100).setReturnImmediately(true).build();
      List<ReceivedMessage> got = subs.pullCallable().call(request).getReceivedMessagesList();
      if (!got.isEmpty() || System.nanoTime() > until) {
        return got;
      }
      try {
        Thread.sleep(50);
      } catch (InterruptedException error) {
        throw new AssertionError(error);
      }
    }
  }

  private List<ReceivedMessage> pull(String sub, int count) {
    List<ReceivedMessage> got = new ArrayList<>();
    while (got.size() < count) {
      want(System.nanoTime() < end, got.size() + " of " + count + " messages came");
      got.addAll(pullOnce(sub, 4));
    }
    return got;
  }

  private void ack(String sub, List<ReceivedMessage> got) {
    subs.acknowledge(sub, got.stream().map(ReceivedMessage::getAckId).toList());
  }

  private Subscriber.Builder subscriber(String sub, MessageReceiver receiver) {
    return Subscriber.newBuilder(sub, receiver).setChannelProvider(channel).setCredentialsProvider(nobody);
  }

  /** Receive until `done` holds. */
  private void until(Subscriber subscriber, java.util.function.BooleanSupplier done) throws Exception {
    subscriber.startAsync().awaitRunning();
    try {
      while (!done.getAsBoolean()) {
        want(System.nanoTime() < end, "not everything came in time");
        want(subscriber.isRunning(), "the subscriber stopped: " + subscriber.state());
        Thread.sleep(10);
      }
    } finally {
      subscriber.stopAsync().awaitTerminated(20, TimeUnit.SECONDS);
    }
  }

  private void topicLife() throws Exception {
    String name = made(topic("topic").putLabels("team", "a"));
    want("a".equals(topics.getTopic(name).getLabelsMap().get("team")), "label lost");
    refused(AlreadyExistsException.class, () -> topics.createTopic(name));
    Topic wished =
        Topic.newBuilder().setName(name).setMessageRetentionDuration(Duration.newBuilder().setSeconds(3600)).build();
    Topic changed =
        topics.updateTopic(
            UpdateTopicRequest.newBuilder()
                .setTopic(wished)
                .setUpdateMask(FieldMask.newBuilder().addPaths("message_retention_duration"))
                .build());
    want(changed.getMessageRetentionDuration().getSeconds() == 3600 && changed.getLabelsCount() == 1, "" + changed);
    boolean listed = false;
    for (Topic one : topics.listTopics("projects/" + PROJECT).iterateAll()) {
      listed |= one.getName().equals(name);
    }
    want(listed, "not listed");
    topics.deleteTopic(name);
    refused(NotFoundException.class, () -> topics.getTopic(name));
  }

  private void subscriptionLife() throws Exception {
    String topic = made(topic("topic"));
    String name = made(sub(topic, "sub"));
    want(subs.getSubscription(name).getTopic().equals(topic), "topic lost");
    Subscription changed =
        subs.updateSubscription(
            UpdateSubscriptionRequest.newBuilder()
                .setSubscription(
                    Subscription.newBuilder().setName(name).setAckDeadlineSeconds(42).putLabels("a", "b"))
                .setUpdateMask(FieldMask.newBuilder().addPaths("ack_deadline_seconds").addPaths("labels"))
                .build());
    want(changed.getAckDeadlineSeconds() == 42 && changed.getLabelsCount() == 1, "" + changed);
    boolean listed = false;
    for (Subscription one : subs.listSubscriptions("projects/" + PROJECT).iterateAll()) {
      listed |= one.getName().equals(name);
    }
    want(listed, "not listed");
    want(topics.listTopicSubscriptions(topic).iterateAll().iterator().next().equals(name), "not listed at its topic");
    subs.deleteSubscription(name);
    refused(NotFoundException.class, () -> subs.getSubscription(name));
  }

  private void publishing() throws Exception {
    String topic = made(topic("topic"));
    String sub = made(sub(topic, "sub").setEnableMessageOrdering(true));
    List<PubsubMessage> messages = new ArrayList<>();
    for (int number = 0; number < 20; number++) {
      messages.add(
          message("" + number).toBuilder().putAttributes("é", "ü" + number).setOrderingKey("k").build());
    }
    List<String> ids = publish(topic, true, messages);
    BlockingQueue<PubsubMessage> got = new LinkedBlockingQueue<>();
    until(
        subscriber(sub, (message, reply) -> { got.add(message); reply.ack(); }).build(),
        () -> got.size() >= ids.size());
    int number = 0;
    for (PubsubMessage one : got) {
      if (number == ids.size()) {
        break;
      }
      PubsubMessage sent = messages.get(number);
      want(
          one.getMessageId().equals(ids.get(number))
              && one.getData().equals(sent.getData())
              && one.getAttributesMap().equals(sent.getAttributesMap())
              && one.getOrderingKey().equals("k"),
          "message " + number + ": " + one);
      number++;
    }
  }

  private void pulling() throws Exception {
    String topic = made(topic("topic"));
    String sub = made(sub(topic, "sub"));
    bodies(topic, "a", "b", "c");
    Set<String> seen = new HashSet<>();
    long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
    while (seen.size() < 3 && System.nanoTime() < until) {
      for (ReceivedMessage one : subs.pull(sub, 10).getReceivedMessagesList()) {
        seen.add(one.getMessage().getData().toStringUtf8());
      }
    }
    want(seen.equals(Set.of("a", "b", "c")), "" + seen);
  }

  private void streamingPull() throws Exception {
    String topic = made(topic("topic"));
    String sub = made(sub(topic, "sub"));
    String[] sent = new String[200];
    Arrays.setAll(sent, Integer::toString);
    bodies(topic, sent);
    Set<String> seen = java.util.concurrent.ConcurrentHashMap.newKeySet();
    AtomicInteger now = new AtomicInteger();
    AtomicInteger most = new AtomicInteger();
    FlowControlSettings flow =
        FlowControlSettings.newBuilder()
            .setMaxOutstandingElementCount(5L)
            .setMaxOutstandingRequestBytes(1L << 20)
            .build();
    MessageReceiver receiver =
        (message, reply) -> {
          most.accumulateAndGet(now.incrementAndGet(), Math::max);
          try {
            Thread.sleep(5);
          } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
          }
          now.decrementAndGet();
          seen.add(message.getData().toStringUtf8());
          reply.ack();
        };
    until(subscriber(sub, receiver).setFlowControlSettings(flow).build(), () -> seen.size() == sent.length);
    want(most.get() <= 5, most + " at once");
  }

  private void acking() throws Exception {
    String topic = made(topic("topic"));
    String sub = made(sub(topic, "sub"));
    bodies(topic, "a", "b");
    ack(sub, pull(sub, 2));
    Thread.sleep(11_000);
    List<ReceivedMessage> left = pullOnce(sub, 2);
    want(left.isEmpty(), left.size() + " acknowledged messages came again");
  }

  private void nacking() throws Exception {
    String topic = made(topic("topic"));
    String sub = made(sub(topic, "sub"));
    bodies(topic, "a");
    AtomicInteger times = new AtomicInteger();
    MessageReceiver receiver =
        (message, reply) -> {
          if (times.incrementAndGet() < 3) {
            reply.nack();
          } else {
            reply.ack();
          }
        };
    until(subscriber(sub, receiver).build(), () -> times.get() >= 3);
  }

  private void modack() throws Exception {
    String topic = made(topic("topic"));
    String sub = made(sub(topic, "sub"));
    bodies(topic, "a");
    List<String> first = List.of(pull(sub, 1).get(0).getAckId());
    subs.modifyAckDeadline(sub, first, 60);
    Thread.sleep(11_000);
    want(pullOnce(sub, 2).isEmpty(), "came again although its deadline was extended");
    subs.modifyAckDeadline(sub, first, 0);
    ack(sub, pull(sub, 1));
  }

  private void exactlyOnce() throws Exception {
    String topic = made(topic("topic"));
    String sub = made(sub(topic, "sub").setEnableExactlyOnceDelivery(true));
    bodies(topic, "a", "b", "c");
    BlockingQueue<Future<AckResponse>> replies = new LinkedBlockingQueue<>();
    MessageReceiverWithAckResponse receiver =
        (PubsubMessage message, AckReplyConsumerWithResponse reply) -> replies.add(reply.ack());
    Subscriber subscriber =
        Subscriber.newBuilder(sub, receiver).setChannelProvider(channel).setCredentialsProvider(nobody).build();
    until(subscriber, () -> replies.size() >= 3 && replies.stream().allMatch(Future::isDone));
    for (Future<AckResponse> reply : replies) {
      AckResponse response = reply.get(20, TimeUnit.SECONDS);
      want(response == AckResponse.SUCCESSFUL, "ack: " + response);
    }
    // An ack id that another delivery replaced is refused.
    bodies(topic, "d");
    List<ReceivedMessage> old = pull(sub, 1);
    subs.modifyAckDeadline(sub, List.of(old.get(0).getAckId()), 0);
    ack(sub, pull(sub, 1));
    refused(InvalidArgumentException.class, () -> ack(sub, old));
  }

  private void deadLetter() throws Exception {
    String dead = made(topic("dead"));
    String deadSub = made(sub(dead, "dead"));
    String topic = made(topic("topic"));
    String sub =
        made(
            sub(topic, "sub")
                .setDeadLetterPolicy(
                    DeadLetterPolicy.newBuilder().setDeadLetterTopic(dead).setMaxDeliveryAttempts(5)));
    bodies(topic, "poison");
    BlockingQueue<Integer> attempts = new LinkedBlockingQueue<>();
    MessageReceiver receiver =
        (message, reply) -> {
          Integer attempt = Subscriber.getDeliveryAttempt(message);
          attempts.add(attempt == null ? -1 : attempt);
          reply.nack();
        };
    until(subscriber(sub, receiver).build(), () -> attempts.size() >= 5);
    want(new ArrayList<>(attempts).equals(List.of(1, 2, 3, 4, 5)), "attempts " + attempts);
    PubsubMessage got = pull(deadSub, 1).get(0).getMessage();
    want(
        got.getData().toStringUtf8().equals("poison")
            && "5".equals(got.getAttributesMap().get("CloudPubSubDeadLetterSourceDeliveryCount")),
        "" + got);
  }

  private void filter() throws Exception {
    String topic = made(topic("topic"));
    String sub = made(sub(topic, "sub").setFilter("attributes.colour = \"red\""));
    publish(
        topic,
        false,
        List.of(
            message("1").toBuilder().putAttributes("colour", "blue").build(),
            message("2").toBuilder().putAttributes("colour", "red").build()));
    List<ReceivedMessage> got = pull(sub, 1);
    want(got.size() == 1 && got.get(0).getMessage().getData().toStringUtf8().equals("2"), "" + got);
  }

  private void snapshotSeek() throws Exception {
    String topic = made(topic("topic"));
    String sub = made(sub(topic, "sub"));
    bodies(topic, "a", "b");
    String snapshot = subs.createSnapshot(name("snapshots", "snap"), sub).getName();
    want(subs.getSnapshot(snapshot).getTopic().equals(topic), "topic lost");
    ack(sub, pull(sub, 2));
    subs.seek(SeekRequest.newBuilder().setSubscription(sub).setSnapshot(snapshot).build());
    ack(sub, pull(sub, 2));
    subs.deleteSnapshot(snapshot);
  }

  private static Schema avro(String name, String definition) {
    return Schema.newBuilder().setName(name).setType(Schema.Type.AVRO).setDefinition(definition).build();
  }

  private Schema madeSchema() {
    return schemas.createSchema("projects/" + PROJECT, avro("", DEFINITION), prefix + "-schema");
  }

  private void schema() throws Exception {
    Schema made = madeSchema();
    String topic =
        made(
            topic("topic")
                .setSchemaSettings(
                    SchemaSettings.newBuilder().setSchema(made.getName()).setEncoding(Encoding.JSON)));
    String sub = made(sub(topic, "sub"));
    bodies(topic, "{\"n\":1}");
    Map<String, String> got = pull(sub, 1).get(0).getMessage().getAttributesMap();
    want(
        "JSON".equals(got.get("googclient_schemaencoding"))
            && made.getRevisionId().equals(got.get("googclient_schemarevisionid")),
        "" + got);
    try {
      bodies(topic, "{\"n\":\"x\"}");
    } catch (java.util.concurrent.ExecutionException error) {
      want(error.getCause() instanceof InvalidArgumentException, "" + error.getCause());
      return;
    }
    throw new AssertionError("a message that does not fit was taken");
  }

  private void iam() {
    String topic = made(topic("topic"));
    Policy policy = topics.getIamPolicy(GetIamPolicyRequest.newBuilder().setResource(topic).build());
    Policy wished =
        policy.toBuilder()
            .addBindings(Binding.newBuilder().setRole("roles/pubsub.viewer").addMembers("user:a@example.com"))
            .build();
    Policy set = topics.setIamPolicy(SetIamPolicyRequest.newBuilder().setResource(topic).setPolicy(wished).build());
    want(set.getBindingsList().equals(wished.getBindingsList()) && !set.getEtag().isEmpty(), "" + set);
    List<String> asked = List.of("pubsub.topics.publish", "pubsub.topics.get");
    TestIamPermissionsRequest request =
        TestIamPermissionsRequest.newBuilder().setResource(topic).addAllPermissions(asked).build();
    List<String> tested = topics.testIamPermissions(request).getPermissionsList();
    want(Set.copyOf(tested).equals(Set.copyOf(asked)), "" + tested);
  }

  private void pushConfig() {
    String sub = made(sub(made(topic("topic")), "sub"));
    PushConfig push =
        PushConfig.newBuilder()
            .setPushEndpoint("https://push.example.com/x")
            .putAttributes("x-goog-version", "v1")
            .build();
    subs.modifyPushConfig(sub, push);
    PushConfig read = subs.getSubscription(sub).getPushConfig();
    want(read.getPushEndpoint().equals(push.getPushEndpoint()), "" + read);
    subs.modifyPushConfig(sub, PushConfig.getDefaultInstance());
    want(subs.getSubscription(sub).getPushConfig().getPushEndpoint().isEmpty(), "still a push subscription");
  }

  private void transforms() throws Exception {
    String code = "function up(message, metadata) { message.data = message.data.toUpperCase(); return message; }";
    MessageTransform transform =
        MessageTransform.newBuilder()
            .setJavascriptUdf(JavaScriptUDF.newBuilder().setFunctionName("up").setCode(code))
            .build();
    String topic = made(topic("topic").addMessageTransforms(transform));
    String sub = made(sub(topic, "sub"));
    List<MessageTransform> read = topics.getTopic(topic).getMessageTransformsList();
    want(read.size() == 1 && read.get(0).getJavascriptUdf().getCode().equals(code), "" + read);
    bodies(topic, "quiet");
    String got = pull(sub, 1).get(0).getMessage().getData().toStringUtf8();
    want(got.equals("QUIET"), got);
  }

  private List<String> revisions(String schema) {
    List<String> ids = new ArrayList<>();
    ListSchemaRevisionsRequest request =
        ListSchemaRevisionsRequest.newBuilder().setName(schema).setView(SchemaView.FULL).build();
    schemas.listSchemaRevisions(request).iterateAll().forEach(one -> ids.add(one.getRevisionId()));
    return ids;
  }

  private void schemaRevisions() throws Exception {
    Schema made = madeSchema();
    String name = made.getName();
    String wider = DEFINITION.replace("]}", ",{\"name\":\"t\",\"type\":\"string\",\"default\":\"\"}]}");
    Schema second = schemas.commitSchema(name, avro(name, wider));
    List<String> listed = revisions(name);
    want(listed.equals(List.of(second.getRevisionId(), made.getRevisionId())), "" + listed);
    schemas.validateMessage(
        ValidateMessageRequest.newBuilder()
            .setParent("projects/" + PROJECT)
            .setName(name)
            .setMessage(ByteString.copyFromUtf8("{\"n\":1,\"t\":\"x\"}"))
            .setEncoding(Encoding.JSON)
            .build());
    Schema third = schemas.rollbackSchema(name, made.getRevisionId());
    want(third.getDefinition().equals(DEFINITION), "" + third);
    schemas.deleteSchemaRevision(name + "@" + second.getRevisionId(), "");
    want(revisions(name).equals(List.of(third.getRevisionId(), made.getRevisionId())), "" + revisions(name));
    refused(InvalidArgumentException.class, () -> schemas.validateSchema("projects/" + PROJECT, avro("", "{")));
  }

  private void pushCreate() throws Exception {
    PushConfig push =
        PushConfig.newBuilder()
            .setPushEndpoint("https://push.example.com/x")
            .putAttributes("x-goog-version", "v1")
            .setOidcToken(
                PushConfig.OidcToken.newBuilder()
                    .setServiceAccountEmail("pusher@example.iam.gserviceaccount.com")
                    .setAudience("us"))
            .build();
    String sub = made(sub(made(topic("topic")), "sub").setPushConfig(push));
    want(subs.getSubscription(sub).getPushConfig().equals(push), "" + subs.getSubscription(sub));
    refused(FailedPreconditionException.class, () -> subs.pull(sub, 1));
  }

  private void detach() throws Exception {
    String topic = made(topic("topic"));
    String sub = made(sub(topic, "sub"));
    topics.detachSubscription(DetachSubscriptionRequest.newBuilder().setSubscription(sub).build());
    want(subs.getSubscription(sub).getDetached(), "not detached");
    want(!topics.listTopicSubscriptions(topic).iterateAll().iterator().hasNext(), "still listed at its topic");
    refused(FailedPreconditionException.class, () -> subs.pull(sub, 1));
  }

  private static void send(Publisher publisher, String body, String attribute) throws Throwable {
    PubsubMessage.Builder message = message(body).toBuilder().setOrderingKey("k");
    if (!attribute.isEmpty()) {
      message.putAttributes(attribute, "too long a name");
    }
    try {
      publisher.publish(message.build()).get(20, TimeUnit.SECONDS);
    } catch (ExecutionException error) {
      throw error.getCause();
    }
  }

  /**
   * After a refused message the client holds its ordering key back until it is asked to go on. What is published in the
   * moment in which it says that a message was refused it neither sends nor answers before it is asked.
   */
  private void orderingResume() throws Exception {
    String topic = made(topic("topic"));
    String sub = made(sub(topic, "sub").setEnableMessageOrdering(true));
    Publisher publisher = publisher(topic, true);
    List<String> errors = new ArrayList<>();
    for (String body : List.of("0", "1", "2", "3")) {
      if (body.equals("3")) {
        publisher.resumePublish("k");
      }
      try {
        send(publisher, body, body.equals("1") ? "n".repeat(257) : "");
      } catch (Throwable error) {
        errors.add(body + " " + error.getClass().getSimpleName());
      }
    }
    publisher.shutdown();
    want(errors.size() == 2 && errors.get(0).equals("1 InvalidArgumentException"), "" + errors);
    want(errors.get(1).startsWith("2 "), "" + errors);
    List<ReceivedMessage> came = pull(sub, errors.get(1).equals("2 TimeoutException") ? 3 : 2);
    List<String> got = came.stream().map(one -> one.getMessage().getData().toStringUtf8()).toList();
    want(got.equals(List.of("0", "3")) || got.equals(List.of("0", "2", "3")), "" + got);
  }

  private void seekTime() throws Exception {
    String topic = made(topic("topic"));
    String sub = made(sub(topic, "sub").setRetainAckedMessages(true));
    long now = System.currentTimeMillis();
    Timestamp start =
        Timestamp.newBuilder().setSeconds(now / 1000).setNanos((int) (now % 1000) * 1_000_000).build();
    bodies(topic, "a", "b");
    ack(sub, pull(sub, 2));
    subs.seek(SeekRequest.newBuilder().setSubscription(sub).setTime(start).build());
    ack(sub, pull(sub, 2));
  }

  private void compression() throws Exception {
    String topic = made(topic("topic"));
    String sub = made(sub(topic, "sub"));
    Publisher publisher =
        Publisher.newBuilder(topic)
            .setChannelProvider(channel)
            .setCredentialsProvider(nobody)
            .setEnableCompression(true)
            .setCompressionBytesThreshold(100)
            .build();
    String body = "x".repeat(50_000);
    publisher.publish(message(body)).get(SECONDS, TimeUnit.SECONDS);
    publisher.shutdown();
    want(pull(sub, 1).get(0).getMessage().getData().toStringUtf8().equals(body), "another message");
  }

  /** What the client puts into attributes while it traces. */
  private void tracing() throws Exception {
    String topic = made(topic("topic"));
    String sub = made(sub(topic, "sub"));
    Map<String, String> sent =
        Map.of("googclient_traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    publish(topic, false, List.of(message("a").toBuilder().putAllAttributes(sent).build()));
    Map<String, String> got = pull(sub, 1).get(0).getMessage().getAttributesMap();
    want(got.equals(sent), "" + got);
  }

  /** What a stream held back for flow control comes to others at once when it is closed. */
  private void cancel() throws Exception {
    String topic = made(topic("topic"));
    String sub = made(sub(topic, "sub").setAckDeadlineSeconds(600));
    bodies(topic, IntStream.range(0, 50).mapToObj(Integer::toString).toArray(String[]::new));
    List<AckReplyConsumer> held = java.util.Collections.synchronizedList(new ArrayList<>());
    FlowControlSettings five = FlowControlSettings.newBuilder().setMaxOutstandingElementCount(5L).build();
    MessageReceiver receiver = (message, reply) -> held.add(reply);
    Subscriber subscriber =
        subscriber(sub, receiver).setFlowControlSettings(five).setParallelPullCount(1).build();
    subscriber.startAsync().awaitRunning();
    while (held.size() < 5) {
      want(System.nanoTime() < end, held.size() + " came");
      Thread.sleep(10);
    }
    subscriber.stopAsync();
    for (int number = 0; number < 5; number++) { // the client ends only when what it handed out is answered
      held.get(number).ack();
    }
    subscriber.awaitTerminated(20, TimeUnit.SECONDS);
    ack(sub, pull(sub, 50 - held.size()));
  }

  /** A stream on which nothing happens for longer than its keep-alive periods is still served. */
  private void idle() throws Exception {
    String topic = made(topic("topic"));
    String sub = made(sub(topic, "sub"));
    CountDownLatch came = new CountDownLatch(1);
    MessageReceiver receiver =
        (message, reply) -> {
          reply.ack();
          came.countDown();
        };
    Subscriber subscriber = subscriber(sub, receiver).build();
    subscriber.startAsync().awaitRunning();
    Thread.sleep(45_000);
    want(subscriber.isRunning(), "the subscriber stopped: " + subscriber.state());
    bodies(topic, "a");
    want(came.await(SECONDS, TimeUnit.SECONDS), "nothing came");
    subscriber.stopAsync().awaitTerminated(20, TimeUnit.SECONDS);
  }

  /** The server is killed and restarted while a subscriber and a publisher are at work; nothing may be lost. */
  private void restart() throws Exception {
    flow("restart");
  }

  /** All processes of the server are restarted in turn in the meantime. */
  private void rolling() throws Exception {
    flow("rolling");
  }

  /** Publish and receive until the driver has done what it is asked for; everything published is received. */
  private void flow(String what) throws Exception {
    end = System.nanoTime() + TimeUnit.SECONDS.toNanos(OUTAGE_SECONDS);
    String topic = made(topic("topic"));
    String sub = made(sub(topic, "sub"));
    Set<String> seen = java.util.concurrent.ConcurrentHashMap.newKeySet();
    MessageReceiver receiver =
        (message, reply) -> {
          seen.add(message.getData().toStringUtf8());
          reply.ack();
        };
    Subscriber subscriber = subscriber(sub, receiver).build();
    subscriber.startAsync().awaitRunning();
    Publisher publisher = publisher(topic, false);
    try {
      List<Future<String>> results = new ArrayList<>();
      results.add(publisher.publish(message("0")));
      results.get(0).get(SECONDS, TimeUnit.SECONDS);
      CountDownLatch answered = new CountDownLatch(1);
      Thread asking = new Thread(() -> ask(what, answered));
      asking.setDaemon(true);
      asking.start();
      for (int after = 0; after < 100; after += answered.getCount() == 0 ? 1 : 0) {
        results.add(publisher.publish(message("" + results.size())));
        Thread.sleep(20);
      }
      for (Future<String> result : results) {
        result.get(Math.max(1, end - System.nanoTime()), TimeUnit.NANOSECONDS);
      }
      while (seen.size() < results.size()) {
        want(System.nanoTime() < end, seen.size() + " of " + results.size() + " came; " + subscriber.state());
        Thread.sleep(20);
      }
      want(subscriber.isRunning(), "the subscriber stopped: " + subscriber.state());
    } finally {
      publisher.shutdown();
      publisher.awaitTermination(10, TimeUnit.SECONDS);
      if (subscriber.isRunning()) {
        subscriber.stopAsync().awaitTerminated(20, TimeUnit.SECONDS);
      }
    }
  }

  private void ask(String what, CountDownLatch answered) {
    System.out.println("{\"ask\": \"" + what + "\"}");
    try {
      stdin.readLine();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    answered.countDown();
  }

  private void run(String scenario, Scenario what) {
    String asked = System.getenv().getOrDefault("SCENARIOS", "");
    if (!asked.isEmpty() && !List.of(asked.split(",")).contains(scenario)) {
      return;
    }
    prefix = scenario;
    end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
    Map<String, String> line = new LinkedHashMap<>();
    line.put("scenario", scenario);
    line.put("result", "pass");
    line.put("detail", "");
    try {
      what.run();
    } catch (Exception | AssertionError error) {
      line.put("result", "fail");
      line.put("detail", error.toString());
      error.printStackTrace();
    }
    System.out.println(new Gson().toJson(line));
  }

  public static void main(String[] arguments) throws Exception {
    Clients it = new Clients();
    it.run("topics", it::topicLife);
    it.run("subscriptions", it::subscriptionLife);
    it.run("publish", it::publishing);
    it.run("pull", it::pulling);
    it.run("streaming_pull", it::streamingPull);
    it.run("ack", it::acking);
    it.run("nack", it::nacking);
    it.run("modack", it::modack);
    it.run("exactly_once", it::exactlyOnce);
    it.run("dead_letter", it::deadLetter);
    it.run("filter", it::filter);
    it.run("snapshot_seek", it::snapshotSeek);
    it.run("schema", it::schema);
    it.run("iam", it::iam);
    it.run("push_config", it::pushConfig);
    it.run("transforms", it::transforms);
    it.run("schema_revisions", it::schemaRevisions);
    it.run("push_create", it::pushCreate);
    it.run("detach", it::detach);
    it.run("ordering_resume", it::orderingResume);
    it.run("seek_time", it::seekTime);
    it.run("compression", it::compression);
    it.run("tracing", it::tracing);
    it.run("cancel", it::cancel);
    it.run("idle", it::idle);
    it.run("restart", it::restart);
    it.run("rolling", it::rolling);
    System.exit(0);
  }
}
