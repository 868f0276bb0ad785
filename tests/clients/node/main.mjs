// An official Node client (PUBSUB_CLIENT) against a running Syncpoint: one JSON line per scenario on stdout.
//
// PUBSUB_EMULATOR_HOST names the server. A line {"ask": "restart"} asks the driver to kill and restart the server,
// {"ask": "rolling"} to restart all its processes in turn; it answers with a line on stdin when the server is back.
// PUBLISH_PAUSE_MS bounds the pauses between attempts to publish. The packages are those of tests/node/official.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const require = createRequire(new URL('../../node/official/package.json', import.meta.url));
const { PubSub, SchemaTypes, Encodings } = require(process.env.PUBSUB_CLIENT ?? '@google-cloud/pubsub');

const SECONDS = 60;
// For scenarios in which the server goes away. While there is no connection each attempt of the client to publish fails in
// the client itself. Before the next one it waits a random part of a time that grows by four from 100 ms to 60 s: a
// message may wait for most of a minute when the connection is back already. 60 s after its first attempt it gives a
// message up; the program then has to publish it again.
const OUTAGE_SECONDS = 240;
const pubsub = new PubSub({ projectId: process.env.CLIENT_PROJECT || `p${Date.now().toString(16)}` });
const input = createInterface({ input: process.stdin });
const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));
const numbers = (count) => Array.from({ length: count }, (_, number) => String(number));
let prefix = '';

// A method of the generated clients, over the connection of the handwritten one.
function call(client, method, reqOpts, gaxOpts = {}) {
  return new Promise((resolve, reject) => {
    pubsub.request({ client, method, reqOpts, gaxOpts }, (error, answer) => (error ? reject(error) : resolve(answer)));
  });
}

const subscriber = (method, reqOpts, gaxOpts) => call('SubscriberClient', method, reqOpts, gaxOpts);

async function topic(short = 'topic', fields = {}) {
  const [made] = await pubsub.createTopic({ name: `${prefix}-${short}`, ...fields });
  return made;
}

async function sub(of, short = 'sub', fields = {}) {
  const [made] = await of.createSubscription(`${prefix}-${short}`, { ackDeadlineSeconds: 10, ...fields });
  return made;
}

async function pair(fields = {}) {
  const of = await topic();
  return [of, await sub(of, 'sub', fields)];
}

const publish = (to, ...bodies) => Promise.all(bodies.map((body) => to.publishMessage({ data: Buffer.from(body) })));

async function pullOnce(from, wait = 4) {
  const end = Date.now() + wait * 1000;
  for (;;) {
    const request = { subscription: from.name, maxMessages: 100, returnImmediately: true };
    const { receivedMessages } = await subscriber('pull', request);
    if (receivedMessages.length || Date.now() > end) return receivedMessages;
    await pause(0.05);
  }
}

async function pull(from, count) {
  const got = [];
  const end = Date.now() + SECONDS * 1000;
  while (got.length < count) {
    assert.ok(Date.now() < end, `${got.length} of ${count} messages came`);
    got.push(...(await pullOnce(from)));
  }
  return got;
}

const ack = (of, got) => subscriber('acknowledge', { subscription: of.name, ackIds: got.map((one) => one.ackId) });

const deadline = (of, got, seconds) =>
  subscriber('modifyAckDeadline', {
    subscription: of.name,
    ackIds: got.map((one) => one.ackId),
    ackDeadlineSeconds: seconds,
  });

// Receive until `each` returns something true.
async function receive(from, each, options, seconds = SECONDS) {
  const listening = options ? pubsub.subscription(from.name, options) : from;
  let timer;
  try {
    await new Promise((resolve, reject) => {
      timer = setTimeout(() => reject(new Error('not everything came in time')), seconds * 1000);
      listening.on('error', reject);
      listening.on('message', (message) => {
        Promise.resolve(each(message)).then((done) => done && resolve(), reject);
      });
    });
  } finally {
    clearTimeout(timer);
    await listening.close();
  }
}

const scenarios = {
  async topics() {
    const made = await topic('topic', { labels: { team: 'a' } });
    assert.equal((await made.getMetadata())[0].labels.team, 'a');
    await assert.rejects(topic(), { code: 6 });
    await made.setMetadata({ messageRetentionDuration: { seconds: 3600 } });
    const [changed] = await made.getMetadata();
    assert.equal(Number(changed.messageRetentionDuration.seconds), 3600);
    const [listed] = await pubsub.getTopics();
    assert.ok(listed.some((one) => one.name === made.name), 'not listed');
    await made.delete();
    await assert.rejects(made.getMetadata(), { code: 5 });
  },
  async subscriptions() {
    const [of, made] = await pair();
    assert.equal((await made.getMetadata())[0].topic, of.name);
    await made.setMetadata({ ackDeadlineSeconds: 42, labels: { a: 'b' } });
    const [changed] = await made.getMetadata();
    assert.deepEqual([changed.ackDeadlineSeconds, changed.labels], [42, { a: 'b' }]);
    const [listed] = await pubsub.getSubscriptions();
    assert.ok(listed.some((one) => one.name === made.name), 'not listed');
    assert.equal((await of.getSubscriptions())[0][0].name, made.name);
    await made.delete();
    await assert.rejects(made.getMetadata(), { code: 5 });
  },
  async publish() {
    const [of, from] = await pair({ enableMessageOrdering: true });
    const ordered = pubsub.topic(of.name, { messageOrdering: true });
    const sent = numbers(20);
    const ids = await Promise.all(
      sent.map((n) => ordered.publishMessage({ data: Buffer.from(n), orderingKey: 'k', attributes: { n, é: 'ü' } })),
    );
    const got = [];
    await receive(from, (message) => {
      got.push([message.id, message.data.toString(), { ...message.attributes }, message.orderingKey]);
      message.ack();
      return got.length >= sent.length;
    });
    assert.deepEqual(got.slice(0, 20), sent.map((n, at) => [ids[at], n, { n, é: 'ü' }, 'k']));
  },
  async pull() {
    const [of, from] = await pair();
    await publish(of, 'a', 'b', 'c');
    const got = await pull(from, 3);
    assert.deepEqual([...new Set(got.map((one) => one.message.data.toString()))].sort(), ['a', 'b', 'c']);
  },
  async streaming_pull() {
    const [of, from] = await pair();
    await publish(of, ...numbers(200));
    const seen = new Set();
    let now = 0;
    let most = 0;
    const each = async (message) => {
      most = Math.max(most, ++now);
      await pause(0.005);
      now--;
      seen.add(message.data.toString());
      message.ack();
      return seen.size === 200;
    };
    await receive(from, each, { flowControl: { maxMessages: 5, allowExcessMessages: false } });
    assert.ok(most <= 5, `${most} at once`);
  },
  async ack() {
    const [of, from] = await pair();
    await publish(of, 'a', 'b');
    await ack(from, await pull(from, 2));
    await pause(11);
    assert.equal((await pullOnce(from, 2)).length, 0, 'acknowledged messages came again');
  },
  async nack() {
    const [of, from] = await pair();
    await publish(of, 'a');
    let times = 0;
    await receive(from, (message) => {
      if (++times < 3) message.nack();
      else message.ack();
      return times >= 3;
    });
  },
  async modack() {
    const [of, from] = await pair();
    await publish(of, 'a');
    const first = await pull(from, 1);
    await deadline(from, first, 60);
    await pause(11);
    assert.equal((await pullOnce(from, 2)).length, 0, 'came again although its deadline was extended');
    await deadline(from, first, 0);
    await ack(from, await pull(from, 1));
  },
  async exactly_once() {
    const [of, from] = await pair({ enableExactlyOnceDelivery: true });
    await publish(of, 'a', 'b', 'c');
    const confirmed = [];
    await receive(from, async (message) => {
      confirmed.push(await message.ackWithResponse());
      return confirmed.length === 3;
    });
    assert.deepEqual([...new Set(confirmed)], ['SUCCESS']);
    await publish(of, 'd');
    const old = await pull(from, 1);
    await deadline(from, old, 0);
    await ack(from, await pull(from, 1));
    await assert.rejects(ack(from, old), { code: 3 });
  },
  async dead_letter() {
    const dead = await topic('dead');
    const letters = await sub(dead, 'dead');
    const [of, from] = await pair({ deadLetterPolicy: { deadLetterTopic: dead.name, maxDeliveryAttempts: 5 } });
    await publish(of, 'poison');
    const attempts = [];
    await receive(from, (message) => {
      attempts.push(message.deliveryAttempt);
      message.nack();
      return attempts.length >= 5;
    });
    assert.deepEqual(attempts, [1, 2, 3, 4, 5]);
    const [got] = await pull(letters, 1);
    assert.equal(got.message.attributes.CloudPubSubDeadLetterSourceDeliveryCount, '5');
  },
  async filter() {
    const [of, from] = await pair({ filter: 'attributes.colour = "red"' });
    await of.publishMessage({ data: Buffer.from('1'), attributes: { colour: 'blue' } });
    await of.publishMessage({ data: Buffer.from('2'), attributes: { colour: 'red' } });
    assert.deepEqual((await pull(from, 1)).map((one) => one.message.data.toString()), ['2']);
  },
  async snapshot_seek() {
    const [of, from] = await pair();
    await publish(of, 'a', 'b');
    const [snapshot] = await from.createSnapshot(`${prefix}-snap`);
    await ack(from, await pull(from, 2));
    await from.seek(snapshot.name);
    await ack(from, await pull(from, 2));
    await snapshot.delete();
  },
  async schema() {
    const definition = '{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}';
    const made = await pubsub.createSchema(`${prefix}-schema`, SchemaTypes.Avro, definition);
    const read = await made.get();
    const schema = await made.getName();
    const of = await topic('topic', { schemaSettings: { schema, encoding: Encodings.Json } });
    const from = await sub(of);
    await publish(of, '{"n":1}');
    const { attributes } = (await pull(from, 1))[0].message;
    assert.equal(attributes.googclient_schemaencoding, 'JSON');
    assert.equal(attributes.googclient_schemarevisionid, read.revisionId);
    await assert.rejects(publish(of, '{"n":"x"}'), { code: 3 });
  },
  async iam() {
    const made = await topic();
    const [policy] = await made.iam.getPolicy();
    const bindings = [...(policy.bindings ?? []), { role: 'roles/pubsub.viewer', members: ['user:a@example.com'] }];
    const [set] = await made.iam.setPolicy({ ...policy, bindings });
    assert.equal(set.bindings.length, bindings.length);
    assert.ok(set.etag.length > 0);
    const [tested] = await made.iam.testPermissions(['pubsub.topics.publish', 'pubsub.topics.get']);
    assert.deepEqual(tested, { 'pubsub.topics.publish': true, 'pubsub.topics.get': true });
  },
  async push_config() {
    const [, from] = await pair();
    const endpoint = async () => (await from.getMetadata())[0].pushConfig?.pushEndpoint ?? '';
    await from.modifyPushConfig({ pushEndpoint: 'https://push.example.com/x' });
    assert.equal(await endpoint(), 'https://push.example.com/x');
    await from.modifyPushConfig({});
    assert.equal(await endpoint(), '');
  },
  async transforms() {
    const code = 'function up(message, metadata) { message.data = message.data.toUpperCase(); return message; }';
    const of = await topic('topic', { messageTransforms: [{ javascriptUdf: { functionName: 'up', code } }] });
    const from = await sub(of);
    const [read] = await of.getMetadata();
    assert.equal(read.messageTransforms[0].javascriptUdf.code, code);
    await publish(of, 'quiet');
    assert.equal((await pull(from, 1))[0].message.data.toString(), 'QUIET');
  },
  async schema_revisions() {
    const definition = '{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}';
    const wider = definition.replace(']}', ',{"name":"t","type":"string","default":""}]}');
    const made = await pubsub.createSchema(`${prefix}-schema`, SchemaTypes.Avro, definition);
    const name = await made.getName();
    const { revisionId: first } = await made.get();
    const client = await pubsub.getSchemaClient();
    const revisions = async () => (await client.listSchemaRevisions({ name, view: 'FULL' }))[0].map((r) => r.revisionId);
    const [second] = await client.commitSchema({ name, schema: { name, type: 'AVRO', definition: wider } });
    assert.deepEqual(await revisions(), [second.revisionId, first]);
    await made.validateMessage(Buffer.from('{"n":1,"t":"x"}'), Encodings.Json);
    const [third] = await client.rollbackSchema({ name, revisionId: first });
    assert.equal(third.definition, definition);
    await client.deleteSchemaRevision({ name: `${name}@${second.revisionId}` });
    assert.deepEqual(await revisions(), [third.revisionId, first]);
    await assert.rejects(pubsub.validateSchema({ type: SchemaTypes.Avro, definition: '{' }), { code: 3 });
  },
  async push_create() {
    const oidcToken = { serviceAccountEmail: 'pusher@example.iam.gserviceaccount.com', audience: 'us' };
    const attributes = { 'x-goog-version': 'v1' };
    const pushConfig = { pushEndpoint: 'https://push.example.com/x', attributes, oidcToken };
    const [, from] = await pair({ pushConfig });
    const read = (await from.getMetadata())[0].pushConfig;
    assert.deepEqual([read.pushEndpoint, read.attributes], [pushConfig.pushEndpoint, attributes]);
    assert.deepEqual({ ...read.oidcToken }, oidcToken);
    await assert.rejects(pullOnce(from), { code: 9 });
  },
  async detach() {
    const [of, from] = await pair();
    await pubsub.detachSubscription(from.name);
    assert.deepEqual(await from.detached(), [true]);
    assert.equal((await of.getSubscriptions())[0].length, 0);
    await assert.rejects(pullOnce(from), { code: 9 });
  },
  // What waits behind a refused message of its ordering key is refused with it, then the key goes on.
  async ordering_resume() {
    const [of, from] = await pair({ enableMessageOrdering: true });
    const ordered = pubsub.topic(of.name, { messageOrdering: true, batching: { maxMessages: 1 } });
    const send = (body, attributes = {}) =>
      ordered.publishMessage({ data: Buffer.from(body), orderingKey: 'k', attributes });
    await send('0');
    const both = [send('1', { ['n'.repeat(257)]: 'too long a name' }), send('2')];
    assert.deepEqual((await Promise.allSettled(both)).map(({ reason }) => reason?.code), [3, 3]);
    ordered.resumePublishing('k');
    await send('3');
    assert.deepEqual((await pull(from, 2)).map((one) => one.message.data.toString()), ['0', '3']);
  },
  async seek_time() {
    const [of, from] = await pair({ retainAckedMessages: true });
    const start = new Date();
    await publish(of, 'a', 'b');
    await ack(from, await pull(from, 2));
    await from.seek(start);
    await ack(from, await pull(from, 2));
  },
  async compression() {
    const [of, from] = await pair();
    const gzip = new PubSub({ projectId: pubsub.projectId, 'grpc.default_compression_algorithm': 2 });
    const body = 'x'.repeat(50_000);
    await publish(gzip.topic(of.name), body);
    assert.equal((await pull(from, 1))[0].message.data.toString(), body);
    await gzip.close();
  },
  // What the client puts into attributes while it traces; the packages here have the API of OpenTelemetry alone.
  async tracing() {
    const [of, from] = await pair();
    const attributes = { googclient_traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' };
    await of.publishMessage({ data: Buffer.from('traced'), attributes });
    assert.deepEqual({ ...(await pull(from, 1))[0].message.attributes }, attributes);
  },
  // What a stream held back for flow control comes to others at once when it is closed.
  async cancel() {
    const [of, from] = await pair({ ackDeadlineSeconds: 600 });
    await publish(of, ...numbers(50));
    let held = 0;
    await receive(from, () => ++held >= 5, { flowControl: { maxMessages: 5, allowExcessMessages: false } });
    await ack(from, await pull(from, 45));
  },
  // A stream on which nothing happens for longer than its keep-alive periods is still served, and not opened anew.
  async idle() {
    const [of, from] = await pair();
    const ended = [];
    from.on('debug', (message) => ended.push(message.message));
    const received = receive(from, (message) => (message.ack(), true), undefined, 45 + SECONDS);
    await pause(45);
    assert.deepEqual(ended, []);
    await publish(of, 'a');
    await received;
  },
  // The server is killed and restarted while a subscriber and a publisher are at work; nothing may be lost.
  restart: () => flow('restart'),
  // All processes of the server are restarted in turn in the meantime.
  rolling: () => flow('rolling'),
};

// Publish and receive until the driver has done what it is asked for; everything published is received.
async function flow(what) {
  const [of, from] = await pair();
  const bound = Number(process.env.PUBLISH_PAUSE_MS ?? 0);
  const backoffSettings = {
    initialRetryDelayMillis: 100, retryDelayMultiplier: 2, maxRetryDelayMillis: bound,
    initialRpcTimeoutMillis: 60_000, rpcTimeoutMultiplier: 1, maxRpcTimeoutMillis: 60_000, totalTimeoutMillis: 600_000,
  };
  const to = pubsub.topic(of.name, bound ? { gaxOpts: { retry: { retryCodes: [14], backoffSettings } } } : {});
  const seen = new Set();
  const published = [];
  let whole = false;
  const take = (message) => {
    seen.add(message.data.toString());
    message.ack();
    return whole && seen.size === published.length;
  };
  const received = receive(from, take, undefined, OUTAGE_SECONDS);
  let confirmed = 0;
  let again = 0;
  const insist = async (data) => {
    for (;;) {
      try {
        await to.publishMessage({ data });
        return confirmed++;
      } catch (error) {
        if (![4, 14].includes(error.code)) throw error;
        again++;
      }
    }
  };
  const send = () => published[published.push(insist(Buffer.from(String(published.length)))) - 1];
  await send();
  let after = 0;
  let answered = false;
  input.once('line', () => (answered = true));
  console.log(JSON.stringify({ ask: what }));
  while (after < 100) {
    send();
    after += answered;
    await pause(0.02);
  }
  const last = Promise.all(published).then(() => {
    whole = true;
    return send();
  });
  await Promise.all([last, received]).catch((error) => {
    throw new Error(`${error.message}: ${confirmed} of ${published.length} confirmed, ${seen.size} received`);
  });
  return again ? `${again} given up by the client after 60 s and published again` : '';
}

const asked = (process.env.SCENARIOS ?? '').split(',').filter(Boolean);
for (const name of asked.length ? asked : Object.keys(scenarios)) {
  prefix = name;
  let [result, detail] = ['pass', ''];
  try {
    detail = (await scenarios[name]()) ?? '';
  } catch (error) {
    console.error(error);
    [result, detail] = ['fail', String(error)];
  }
  console.log(JSON.stringify({ scenario: name, result, detail }));
}
process.exit(0);
