// The official Go client against a running Syncpoint: one JSON line per scenario on stdout.
//
// PUBSUB_EMULATOR_HOST names the server. A line {"ask": "restart"} asks the driver to kill and restart the server,
// {"ask": "rolling"} to restart all its processes in turn; it answers with a line on stdin when the server is back.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	iampb "cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2"
	vkit "cloud.google.com/go/pubsub/v2/apiv1"
	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

var project = cmp.Or(os.Getenv("CLIENT_PROJECT"), fmt.Sprintf("p%x", time.Now().UnixNano()))

type space struct {
	ctx     context.Context
	client  *pubsub.Client
	schemas *vkit.SchemaClient
	topics  *vkit.TopicAdminClient
	subs    *vkit.SubscriptionAdminClient
	prefix  string
}

// Failures travel as panics from where they are seen to the one place that reports them.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func get[T any](value T, err error) T {
	must(err)
	return value
}

func want(holds bool, what string, args ...any) {
	if !holds {
		panic(fmt.Errorf(what, args...))
	}
}

func wantCode(err error, code codes.Code) {
	want(status.Code(err) == code, "%v instead of %v", err, code)
}

func (s *space) name(kind, short string) string {
	return fmt.Sprintf("projects/%s/%s/%s-%s", project, kind, s.prefix, short)
}

func (s *space) topic(short string, fill func(*pb.Topic)) string {
	topic := &pb.Topic{Name: s.name("topics", short)}
	if fill != nil {
		fill(topic)
	}
	return get(s.topics.CreateTopic(s.ctx, topic)).Name
}

func (s *space) sub(topic, short string, fill func(*pb.Subscription)) string {
	sub := &pb.Subscription{Name: s.name("subscriptions", short), Topic: topic, AckDeadlineSeconds: 10}
	if fill != nil {
		fill(sub)
	}
	return get(s.subs.CreateSubscription(s.ctx, sub)).Name
}

func (s *space) pair(fill func(*pb.Subscription)) (string, string) {
	topic := s.topic("topic", nil)
	return topic, s.sub(topic, "sub", fill)
}

func (s *space) publish(topic string, ordered bool, messages ...*pubsub.Message) []string {
	publisher := s.client.Publisher(topic)
	publisher.EnableMessageOrdering = ordered
	defer publisher.Stop()
	var results []*pubsub.PublishResult
	for _, message := range messages {
		results = append(results, publisher.Publish(s.ctx, message))
	}
	var ids []string
	for _, result := range results {
		ids = append(ids, get(result.Get(s.ctx)))
	}
	return ids
}

func (s *space) bodies(topic string, bodies ...string) []string {
	var messages []*pubsub.Message
	for _, body := range bodies {
		messages = append(messages, &pubsub.Message{Data: []byte(body)})
	}
	return s.publish(topic, false, messages...)
}

func (s *space) pullOnce(sub string, most int32) []*pb.ReceivedMessage {
	ctx, cancel := context.WithTimeout(s.ctx, 4*time.Second)
	defer cancel()
	answer, err := s.subs.Pull(ctx, &pb.PullRequest{Subscription: sub, MaxMessages: most})
	if status.Code(err) == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	must(err)
	return answer.ReceivedMessages
}

func (s *space) pull(sub string, count int) []*pb.ReceivedMessage {
	var got []*pb.ReceivedMessage
	for len(got) < count {
		want(s.ctx.Err() == nil, "%d of %d messages came", len(got), count)
		got = append(got, s.pullOnce(sub, 100)...)
	}
	return got
}

func (s *space) ack(sub string, got ...*pb.ReceivedMessage) {
	var ids []string
	for _, one := range got {
		ids = append(ids, one.AckId)
	}
	must(s.subs.Acknowledge(s.ctx, &pb.AcknowledgeRequest{Subscription: sub, AckIds: ids}))
}

// Receive until `done` says so; the high-level subscriber.
func (s *space) receive(sub string, settings pubsub.ReceiveSettings, each func(*pubsub.Message) bool) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	subscriber := s.client.Subscriber(sub)
	subscriber.ReceiveSettings = settings
	var lock sync.Mutex
	must(subscriber.Receive(ctx, func(_ context.Context, message *pubsub.Message) {
		lock.Lock()
		defer lock.Unlock()
		if each(message) {
			cancel()
		}
	}))
	want(s.ctx.Err() == nil, "not everything came in time")
}

func topicLife(s *space) string {
	name := s.topic("topic", func(t *pb.Topic) { t.Labels = map[string]string{"team": "a"} })
	want(get(s.topics.GetTopic(s.ctx, &pb.GetTopicRequest{Topic: name})).Labels["team"] == "a", "label lost")
	_, err := s.topics.CreateTopic(s.ctx, &pb.Topic{Name: name})
	wantCode(err, codes.AlreadyExists)
	changed := get(s.topics.UpdateTopic(s.ctx, &pb.UpdateTopicRequest{
		Topic:      &pb.Topic{Name: name, MessageRetentionDuration: durationpb.New(time.Hour)},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"message_retention_duration"}},
	}))
	want(changed.MessageRetentionDuration.AsDuration() == time.Hour && changed.Labels["team"] == "a", "update: %v", changed)
	listed := false
	all := s.topics.ListTopics(s.ctx, &pb.ListTopicsRequest{Project: "projects/" + project, PageSize: 1})
	for {
		one, err := all.Next()
		if err == iterator.Done {
			break
		}
		must(err)
		listed = listed || one.Name == name
	}
	want(listed, "not listed")
	must(s.topics.DeleteTopic(s.ctx, &pb.DeleteTopicRequest{Topic: name}))
	_, err = s.topics.GetTopic(s.ctx, &pb.GetTopicRequest{Topic: name})
	wantCode(err, codes.NotFound)
	return ""
}

func subscriptionLife(s *space) string {
	topic, name := s.pair(nil)
	want(get(s.subs.GetSubscription(s.ctx, &pb.GetSubscriptionRequest{Subscription: name})).Topic == topic, "topic lost")
	changed := get(s.subs.UpdateSubscription(s.ctx, &pb.UpdateSubscriptionRequest{
		Subscription: &pb.Subscription{Name: name, AckDeadlineSeconds: 42, Labels: map[string]string{"a": "b"}},
		UpdateMask:   &fieldmaskpb.FieldMask{Paths: []string{"ack_deadline_seconds", "labels"}},
	}))
	want(changed.AckDeadlineSeconds == 42 && changed.Labels["a"] == "b", "update: %v", changed)
	all := s.subs.ListSubscriptions(s.ctx, &pb.ListSubscriptionsRequest{Project: "projects/" + project})
	listed := false
	for {
		one, err := all.Next()
		if err == iterator.Done {
			break
		}
		must(err)
		listed = listed || one.Name == name
	}
	want(listed, "not listed")
	ofTopic := s.topics.ListTopicSubscriptions(s.ctx, &pb.ListTopicSubscriptionsRequest{Topic: topic})
	want(get(ofTopic.Next()) == name, "not listed at its topic")
	must(s.subs.DeleteSubscription(s.ctx, &pb.DeleteSubscriptionRequest{Subscription: name}))
	_, err := s.subs.GetSubscription(s.ctx, &pb.GetSubscriptionRequest{Subscription: name})
	wantCode(err, codes.NotFound)
	return ""
}

func publish(s *space) string {
	topic, sub := s.pair(func(sub *pb.Subscription) { sub.EnableMessageOrdering = true })
	var messages []*pubsub.Message
	for number := range 20 {
		messages = append(messages, &pubsub.Message{
			Data: fmt.Appendf(nil, "%d", number), Attributes: map[string]string{"n": fmt.Sprint(number), "é": "ü"}, OrderingKey: "k",
		})
	}
	ids := s.publish(topic, true, messages...)
	next := 0
	s.receive(sub, pubsub.ReceiveSettings{}, func(m *pubsub.Message) bool {
		m.Ack()
		if next < len(ids) {
			want2(s, m.ID == ids[next] && string(m.Data) == fmt.Sprint(next) && m.Attributes["é"] == "ü" && m.OrderingKey == "k",
				fmt.Sprintf("message %d: %v %q %v %q", next, m.ID, m.Data, m.Attributes, m.OrderingKey))
			next++
		}
		return next == len(ids)
	})
	return ""
}

// A check inside a callback, which runs in a goroutine of its own: the first failure is kept and reported afterwards.
var failed atomic.Pointer[string]

func want2(_ *space, holds bool, what string) {
	if !holds {
		failed.CompareAndSwap(nil, &what)
	}
}

func pull(s *space) string {
	topic, sub := s.pair(nil)
	s.bodies(topic, "a", "b", "c")
	seen := map[string]bool{}
	for _, one := range s.pull(sub, 3) {
		seen[string(one.Message.Data)] = true
	}
	want(len(seen) == 3, "%v", seen)
	return ""
}

func streamingPull(s *space) string {
	topic, sub := s.pair(nil)
	var bodies []string
	for number := range 200 {
		bodies = append(bodies, fmt.Sprint(number))
	}
	s.bodies(topic, bodies...)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	subscriber := s.client.Subscriber(sub)
	subscriber.ReceiveSettings = pubsub.ReceiveSettings{MaxOutstandingMessages: 5, MaxOutstandingBytes: 1 << 20, NumGoroutines: 1}
	var lock sync.Mutex
	seen, now, most := map[string]bool{}, 0, 0
	must(subscriber.Receive(ctx, func(_ context.Context, m *pubsub.Message) {
		lock.Lock()
		now++
		most = max(most, now)
		lock.Unlock()
		time.Sleep(5 * time.Millisecond)
		lock.Lock()
		defer lock.Unlock()
		now--
		seen[string(m.Data)] = true
		m.Ack()
		if len(seen) == len(bodies) {
			cancel()
		}
	}))
	want(len(seen) == len(bodies) && most <= 5, "%d messages, %d at once", len(seen), most)
	return ""
}

func ack(s *space) string {
	topic, sub := s.pair(nil)
	s.bodies(topic, "a", "b")
	s.ack(sub, s.pull(sub, 2)...)
	time.Sleep(11 * time.Second)
	left := s.pullOnce(sub, 10)
	want(len(left) == 0, "%d acknowledged messages came again", len(left))
	return ""
}

func nack(s *space) string {
	topic, sub := s.pair(nil)
	s.bodies(topic, "a")
	times := 0
	s.receive(sub, pubsub.ReceiveSettings{}, func(m *pubsub.Message) bool {
		times++
		if times < 3 {
			m.Nack()
			return false
		}
		m.Ack()
		return true
	})
	return ""
}

func modack(s *space) string {
	topic, sub := s.pair(nil)
	s.bodies(topic, "a")
	change := func(one *pb.ReceivedMessage, seconds int32) {
		must(s.subs.ModifyAckDeadline(s.ctx, &pb.ModifyAckDeadlineRequest{
			Subscription: sub, AckIds: []string{one.AckId}, AckDeadlineSeconds: seconds,
		}))
	}
	first := s.pull(sub, 1)[0]
	change(first, 60)
	time.Sleep(11 * time.Second)
	early := s.pullOnce(sub, 1)
	want(len(early) == 0, "came again although its deadline was extended")
	change(first, 0)
	s.ack(sub, s.pull(sub, 1)...)
	return ""
}

func exactlyOnce(s *space) string {
	topic, sub := s.pair(func(sub *pb.Subscription) { sub.EnableExactlyOnceDelivery = true })
	s.bodies(topic, "a", "b", "c")
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var confirmed atomic.Int32
	must(s.client.Subscriber(sub).Receive(ctx, func(_ context.Context, m *pubsub.Message) {
		result, err := m.AckWithResult().Get(s.ctx)
		want2(s, err == nil && result == pubsub.AcknowledgeStatusSuccess, fmt.Sprintf("ack: %v %v", result, err))
		if confirmed.Add(1) == 3 {
			cancel()
		}
	}))
	want(confirmed.Load() == 3, "%d confirmed", confirmed.Load())
	// An ack id that another delivery replaced is refused.
	s.bodies(topic, "d")
	old := s.pull(sub, 1)[0]
	must(s.subs.ModifyAckDeadline(s.ctx, &pb.ModifyAckDeadlineRequest{Subscription: sub, AckIds: []string{old.AckId}}))
	s.ack(sub, s.pull(sub, 1)...)
	err := s.subs.Acknowledge(s.ctx, &pb.AcknowledgeRequest{Subscription: sub, AckIds: []string{old.AckId}})
	wantCode(err, codes.InvalidArgument)
	return ""
}

func deadLetter(s *space) string {
	dead := s.topic("dead", nil)
	deadSub := s.sub(dead, "dead", nil)
	topic, sub := s.pair(func(sub *pb.Subscription) {
		sub.DeadLetterPolicy = &pb.DeadLetterPolicy{DeadLetterTopic: dead, MaxDeliveryAttempts: 5}
	})
	s.bodies(topic, "poison")
	attempts := 0
	s.receive(sub, pubsub.ReceiveSettings{}, func(m *pubsub.Message) bool {
		attempts++
		want2(s, m.DeliveryAttempt != nil && *m.DeliveryAttempt == attempts, fmt.Sprintf("attempt %v of %d", m.DeliveryAttempt, attempts))
		m.Nack()
		return attempts == 5
	})
	got := s.pull(deadSub, 1)[0].Message
	want(string(got.Data) == "poison" && got.Attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5", "%v", got)
	return ""
}

func filter(s *space) string {
	topic, sub := s.pair(func(sub *pb.Subscription) { sub.Filter = `attributes.colour = "red"` })
	s.publish(topic, false,
		&pubsub.Message{Data: []byte("1"), Attributes: map[string]string{"colour": "blue"}},
		&pubsub.Message{Data: []byte("2"), Attributes: map[string]string{"colour": "red"}})
	got := s.pull(sub, 1)
	want(len(got) == 1 && string(got[0].Message.Data) == "2", "%v", got)
	return ""
}

func snapshotSeek(s *space) string {
	topic, sub := s.pair(nil)
	s.bodies(topic, "a", "b")
	snapshot := get(s.subs.CreateSnapshot(s.ctx, &pb.CreateSnapshotRequest{Name: s.name("snapshots", "snap"), Subscription: sub}))
	want(get(s.subs.GetSnapshot(s.ctx, &pb.GetSnapshotRequest{Snapshot: snapshot.Name})).Topic == topic, "topic lost")
	s.ack(sub, s.pull(sub, 2)...)
	get(s.subs.Seek(s.ctx, &pb.SeekRequest{Subscription: sub, Target: &pb.SeekRequest_Snapshot{Snapshot: snapshot.Name}}))
	s.ack(sub, s.pull(sub, 2)...)
	must(s.subs.DeleteSnapshot(s.ctx, &pb.DeleteSnapshotRequest{Snapshot: snapshot.Name}))
	return ""
}

const definition = `{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}`

func (s *space) madeSchema() *pb.Schema {
	return get(s.schemas.CreateSchema(s.ctx, &pb.CreateSchemaRequest{
		Parent: "projects/" + project, SchemaId: s.prefix + "-schema",
		Schema: &pb.Schema{Type: pb.Schema_AVRO, Definition: definition},
	}))
}

func schema(s *space) string {
	made := s.madeSchema()
	topic := s.topic("topic", func(t *pb.Topic) {
		t.SchemaSettings = &pb.SchemaSettings{Schema: made.Name, Encoding: pb.Encoding_JSON}
	})
	sub := s.sub(topic, "sub", nil)
	s.bodies(topic, `{"n":1}`)
	got := s.pull(sub, 1)[0].Message
	want(got.Attributes["googclient_schemaencoding"] == "JSON" && got.Attributes["googclient_schemarevisionid"] == made.RevisionId, "%v", got.Attributes)
	publisher := s.client.Publisher(topic)
	defer publisher.Stop()
	_, err := publisher.Publish(s.ctx, &pubsub.Message{Data: []byte(`{"n":"x"}`)}).Get(s.ctx)
	wantCode(err, codes.InvalidArgument)
	return ""
}

func iam(s *space) string {
	topic := s.topic("topic", nil)
	policy := get(s.topics.GetIamPolicy(s.ctx, &iampb.GetIamPolicyRequest{Resource: topic}))
	policy.Bindings = append(policy.Bindings, &iampb.Binding{Role: "roles/pubsub.viewer", Members: []string{"user:a@example.com"}})
	set := get(s.topics.SetIamPolicy(s.ctx, &iampb.SetIamPolicyRequest{Resource: topic, Policy: policy}))
	want(len(set.Bindings) == len(policy.Bindings) && len(set.Etag) > 0, "%v", set)
	asked := []string{"pubsub.topics.publish", "pubsub.topics.get"}
	tested := get(s.topics.TestIamPermissions(s.ctx, &iampb.TestIamPermissionsRequest{Resource: topic, Permissions: asked}))
	want(len(tested.Permissions) == 2, "%v", tested)
	return ""
}

func pushConfig(s *space) string {
	_, sub := s.pair(nil)
	read := func() *pb.PushConfig {
		return get(s.subs.GetSubscription(s.ctx, &pb.GetSubscriptionRequest{Subscription: sub})).GetPushConfig()
	}
	push := &pb.PushConfig{PushEndpoint: "https://push.example.com/x", Attributes: map[string]string{"x-goog-version": "v1"}}
	must(s.subs.ModifyPushConfig(s.ctx, &pb.ModifyPushConfigRequest{Subscription: sub, PushConfig: push}))
	want(read().GetPushEndpoint() == push.PushEndpoint, "%v", read())
	must(s.subs.ModifyPushConfig(s.ctx, &pb.ModifyPushConfigRequest{Subscription: sub, PushConfig: &pb.PushConfig{}}))
	want(read().GetPushEndpoint() == "", "%v", read())
	return ""
}

func transforms(s *space) string {
	code := "function up(message, metadata) { message.data = message.data.toUpperCase(); return message; }"
	transform := &pb.MessageTransform{Transform: &pb.MessageTransform_JavascriptUdf{
		JavascriptUdf: &pb.JavaScriptUDF{FunctionName: "up", Code: code},
	}}
	topic := s.topic("topic", func(t *pb.Topic) { t.MessageTransforms = []*pb.MessageTransform{transform} })
	sub := s.sub(topic, "sub", nil)
	read := get(s.topics.GetTopic(s.ctx, &pb.GetTopicRequest{Topic: topic})).MessageTransforms
	want(len(read) == 1 && read[0].GetJavascriptUdf().GetCode() == code, "%v", read)
	s.bodies(topic, "quiet")
	got := string(s.pull(sub, 1)[0].Message.Data)
	want(got == "QUIET", "%q", got)
	return ""
}

func schemaRevisions(s *space) string {
	made := s.madeSchema()
	wider := strings.Replace(definition, "]}", `,{"name":"t","type":"string","default":""}]}`, 1)
	second := get(s.schemas.CommitSchema(s.ctx, &pb.CommitSchemaRequest{
		Name: made.Name, Schema: &pb.Schema{Name: made.Name, Type: pb.Schema_AVRO, Definition: wider},
	}))
	revisions := func() []string {
		var ids []string
		all := s.schemas.ListSchemaRevisions(s.ctx, &pb.ListSchemaRevisionsRequest{Name: made.Name, View: pb.SchemaView_FULL})
		for {
			one, err := all.Next()
			if err == iterator.Done {
				return ids
			}
			must(err)
			ids = append(ids, one.RevisionId)
		}
	}
	want(slices.Equal(revisions(), []string{second.RevisionId, made.RevisionId}), "%v", revisions())
	get(s.schemas.ValidateMessage(s.ctx, &pb.ValidateMessageRequest{
		Parent: "projects/" + project, SchemaSpec: &pb.ValidateMessageRequest_Name{Name: made.Name},
		Message: []byte(`{"n":1,"t":"x"}`), Encoding: pb.Encoding_JSON,
	}))
	third := get(s.schemas.RollbackSchema(s.ctx, &pb.RollbackSchemaRequest{Name: made.Name, RevisionId: made.RevisionId}))
	want(third.Definition == definition, "%v", third)
	get(s.schemas.DeleteSchemaRevision(s.ctx, &pb.DeleteSchemaRevisionRequest{Name: made.Name + "@" + second.RevisionId}))
	want(slices.Equal(revisions(), []string{third.RevisionId, made.RevisionId}), "%v", revisions())
	_, err := s.schemas.ValidateSchema(s.ctx, &pb.ValidateSchemaRequest{
		Parent: "projects/" + project, Schema: &pb.Schema{Type: pb.Schema_AVRO, Definition: "{"},
	})
	wantCode(err, codes.InvalidArgument)
	return ""
}

func (s *space) pullRefused(sub string) {
	_, err := s.subs.Pull(s.ctx, &pb.PullRequest{Subscription: sub, MaxMessages: 1})
	wantCode(err, codes.FailedPrecondition)
}

func pushCreate(s *space) string {
	token := &pb.PushConfig_OidcToken{ServiceAccountEmail: "pusher@example.iam.gserviceaccount.com", Audience: "us"}
	push := &pb.PushConfig{
		PushEndpoint: "https://push.example.com/x", Attributes: map[string]string{"x-goog-version": "v1"},
		AuthenticationMethod: &pb.PushConfig_OidcToken_{OidcToken: token},
	}
	_, sub := s.pair(func(sub *pb.Subscription) { sub.PushConfig = push })
	read := get(s.subs.GetSubscription(s.ctx, &pb.GetSubscriptionRequest{Subscription: sub})).GetPushConfig()
	want(proto.Equal(read, push), "%v", read)
	s.pullRefused(sub)
	return ""
}

func detach(s *space) string {
	topic, sub := s.pair(nil)
	get(s.topics.DetachSubscription(s.ctx, &pb.DetachSubscriptionRequest{Subscription: sub}))
	want(get(s.subs.GetSubscription(s.ctx, &pb.GetSubscriptionRequest{Subscription: sub})).Detached, "not detached")
	_, err := s.topics.ListTopicSubscriptions(s.ctx, &pb.ListTopicSubscriptionsRequest{Topic: topic}).Next()
	want(err == iterator.Done, "still listed at its topic: %v", err)
	s.pullRefused(sub)
	return ""
}

// After a refused message the client holds its ordering key back until it is asked to go on.
func orderingResume(s *space) string {
	topic, sub := s.pair(func(sub *pb.Subscription) { sub.EnableMessageOrdering = true })
	publisher := s.client.Publisher(topic)
	publisher.EnableMessageOrdering = true
	defer publisher.Stop()
	send := func(body string, attributes map[string]string) error {
		message := &pubsub.Message{Data: []byte(body), OrderingKey: "k", Attributes: attributes}
		_, err := publisher.Publish(s.ctx, message).Get(s.ctx)
		return err
	}
	must(send("0", nil))
	wantCode(send("1", map[string]string{strings.Repeat("n", 257): "too long a name"}), codes.InvalidArgument)
	var paused pubsub.ErrPublishingPaused
	want(errors.As(send("2", nil), &paused), "the key was not paused")
	publisher.ResumePublish("k")
	must(send("3", nil))
	got := s.pull(sub, 2)
	want(string(got[0].Message.Data) == "0" && string(got[1].Message.Data) == "3", "%v", got)
	return ""
}

func seekTime(s *space) string {
	topic, sub := s.pair(func(sub *pb.Subscription) { sub.RetainAckedMessages = true })
	start := timestamppb.Now()
	s.bodies(topic, "a", "b")
	s.ack(sub, s.pull(sub, 2)...)
	get(s.subs.Seek(s.ctx, &pb.SeekRequest{Subscription: sub, Target: &pb.SeekRequest_Time{Time: start}}))
	s.ack(sub, s.pull(sub, 2)...)
	return ""
}

func compression(s *space) string {
	topic, sub := s.pair(nil)
	publisher := s.client.Publisher(topic)
	publisher.PublishSettings.EnableCompression = true
	publisher.PublishSettings.CompressionBytesThreshold = 100
	defer publisher.Stop()
	body := strings.Repeat("x", 50_000)
	get(publisher.Publish(s.ctx, &pubsub.Message{Data: []byte(body)}).Get(s.ctx))
	want(string(s.pull(sub, 1)[0].Message.Data) == body, "another message")
	return ""
}

// What the client puts into attributes while it traces.
func tracing(s *space) string {
	topic, sub := s.pair(nil)
	parent := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	s.publish(topic, false, &pubsub.Message{Data: []byte("a"), Attributes: map[string]string{"googclient_traceparent": parent}})
	got := s.pull(sub, 1)[0].Message.Attributes
	want(len(got) == 1 && got["googclient_traceparent"] == parent, "%v", got)
	return ""
}

// What a stream held back for flow control comes to others at once when it is closed.
func cancelled(s *space) string {
	topic, sub := s.pair(func(sub *pb.Subscription) { sub.AckDeadlineSeconds = 600 })
	var bodies []string
	for number := range 50 {
		bodies = append(bodies, fmt.Sprint(number))
	}
	s.bodies(topic, bodies...)
	var held atomic.Int32
	settings := pubsub.ReceiveSettings{MaxOutstandingMessages: 5, MaxOutstandingBytes: 1 << 20, NumGoroutines: 1}
	settings.ShutdownOptions = &pubsub.ShutdownOptions{Behavior: pubsub.ShutdownBehaviorNackImmediately, Timeout: time.Second}
	s.receive(sub, settings, func(*pubsub.Message) bool { return held.Add(1) >= 5 })
	s.ack(sub, s.pull(sub, 45)...)
	return ""
}

// A stream on which nothing happens for longer than its keep-alive periods is still served.
func idle(s *space) string {
	topic, sub := s.pair(nil)
	go func() {
		time.Sleep(45 * time.Second)
		s.client.Publisher(topic).Publish(s.ctx, &pubsub.Message{Data: []byte("a")})
	}()
	s.receive(sub, pubsub.ReceiveSettings{}, func(m *pubsub.Message) bool {
		m.Ack()
		return true
	})
	return ""
}

// The server is killed and restarted while a subscriber and a publisher are at work; nothing may be lost.
func restart(s *space) string { return flow(s, "restart") }

// All processes of the server are restarted in turn in the meantime.
func rolling(s *space) string { return flow(s, "rolling") }

// Publish and receive until the driver has done what it is asked for; everything published is received.
func flow(s *space, what string) string {
	topic, sub := s.pair(nil)
	var lock sync.Mutex
	seen := map[string]bool{}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	received := make(chan error, 1)
	go func() {
		received <- s.client.Subscriber(sub).Receive(ctx, func(_ context.Context, m *pubsub.Message) {
			lock.Lock()
			defer lock.Unlock()
			seen[string(m.Data)] = true
			m.Ack()
		})
	}()
	publisher := s.client.Publisher(topic)
	defer publisher.Stop()
	var results []*pubsub.PublishResult
	send := func() {
		body := fmt.Appendf(nil, "%d", len(results))
		results = append(results, publisher.Publish(s.ctx, &pubsub.Message{Data: body}))
	}
	send()
	get(results[0].Get(s.ctx))
	answered := make(chan bool)
	go func() {
		ask(what)
		close(answered)
	}()
	for after := 0; after < 100; {
		send()
		select {
		case <-answered:
			after++
		default:
		}
		time.Sleep(20 * time.Millisecond)
	}
	// The client gives a message up 60 s after its first attempt, of which it makes few, with pauses that grow to 60 s.
	again := 0
	for number, result := range results {
		for {
			_, err := result.Get(s.ctx)
			if err == nil {
				break
			}
			code := status.Code(err)
			gaveUp := errors.Is(err, context.DeadlineExceeded) || code == codes.DeadlineExceeded || code == codes.Unavailable
			want(gaveUp && s.ctx.Err() == nil, "%v", err)
			again++
			result = publisher.Publish(s.ctx, &pubsub.Message{Data: fmt.Appendf(nil, "%d", number)})
		}
	}
	count := func() int {
		lock.Lock()
		defer lock.Unlock()
		return len(seen)
	}
	for count() < len(results) {
		select {
		case err := <-received:
			want(false, "the stream ended with %d of %d: %v", count(), len(results), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	cancel()
	must(<-received)
	if again > 0 {
		return fmt.Sprintf("%d given up by the client after 60 s and published again", again)
	}
	return ""
}

var stdin = bufio.NewReader(os.Stdin)

func ask(what string) {
	fmt.Printf("{\"ask\": %q}\n", what)
	get(stdin.ReadString('\n'))
}

// Scenarios in which the server goes away or nothing happens for long.
var long = map[string]time.Duration{"idle": 105 * time.Second, "restart": 240 * time.Second, "rolling": 240 * time.Second}

func run(name string, scenario func(*space) string, s space) {
	ctx, cancel := context.WithTimeout(context.Background(), max(60*time.Second, long[name]))
	defer cancel()
	s.ctx, s.prefix = ctx, name
	line := map[string]string{"scenario": name, "result": "pass", "detail": ""}
	failed.Store(nil)
	func() {
		defer func() {
			if seen := recover(); seen != nil {
				line["result"], line["detail"] = "fail", fmt.Sprint(seen)
			}
		}()
		line["detail"] = scenario(&s)
		if first := failed.Load(); first != nil {
			panic(*first)
		}
	}()
	get(fmt.Println(string(get(json.Marshal(line)))))
}

func main() {
	ctx := context.Background()
	client := get(pubsub.NewClient(ctx, project))
	connection := get(grpc.NewClient(os.Getenv("PUBSUB_EMULATOR_HOST"), grpc.WithTransportCredentials(insecure.NewCredentials())))
	schemas := get(vkit.NewSchemaClient(ctx, option.WithGRPCConn(connection)))
	base := space{client: client, schemas: schemas, topics: client.TopicAdminClient, subs: client.SubscriptionAdminClient}
	for _, one := range []struct {
		name string
		run  func(*space) string
	}{
		{"topics", topicLife}, {"subscriptions", subscriptionLife}, {"publish", publish}, {"pull", pull},
		{"streaming_pull", streamingPull}, {"ack", ack}, {"nack", nack}, {"modack", modack},
		{"exactly_once", exactlyOnce}, {"dead_letter", deadLetter}, {"filter", filter},
		{"snapshot_seek", snapshotSeek}, {"schema", schema}, {"iam", iam}, {"push_config", pushConfig},
		{"transforms", transforms}, {"schema_revisions", schemaRevisions}, {"push_create", pushCreate},
		{"detach", detach}, {"ordering_resume", orderingResume}, {"seek_time", seekTime},
		{"compression", compression}, {"tracing", tracing}, {"cancel", cancelled}, {"idle", idle},
		{"restart", restart}, {"rolling", rolling},
	} {
		if asked := os.Getenv("SCENARIOS"); asked == "" || slices.Contains(strings.Split(asked, ","), one.name) {
			run(one.name, one.run, base)
		}
	}
}
