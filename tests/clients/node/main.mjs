// An official Node client (PUBSUB_CLIENT) against a running Syncpoint: one JSON line per scenario on stdout.
//
// PUBSUB_EMULATOR_HOST names the server. A line {"ask": "restart"} asks the driver to kill and restart the server; it
// answers with a line on stdin when the server is back. The packages are those of tests/node/official.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const require = createRequire(new URL('../../node/official/package.json', import.meta.url));
const { PubSub, SchemaTypes, Encodings } = require(process.env.PUBSUB_CLIENT ?? '@google-cloud/pubsub');

const SECONDS = 60;
const pubsub = new PubSub({ projectId: `p${Date.now().toString(16)}` });
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
async function receive(from, each, options) {
  const listening = options ? pubsub.subscription(from.name, options) : from;
  let timer;
  try {
    await new Promise((resolve, reject) => {
      timer = setTimeout(() => reject(new Error('not everything came in time')), SECONDS * 1000);
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
  // The server is killed and restarted while a subscriber and a publisher are at work; nothing may be lost.
  async restart() {
    const [of, from] = await pair();
    const count = 300;
    const seen = new Set();
    const received = receive(from, (message) => {
      seen.add(message.data.toString());
      message.ack();
      return seen.size === count;
    });
    const published = [];
    for (const n of numbers(count)) {
      published.push(of.publishMessage({ data: Buffer.from(n) }));
      if (Number(n) === count / 2) {
        await published[0];
        const answered = new Promise((resolve) => input.once('line', resolve));
        console.log('{"ask": "restart"}');
        await answered;
      }
      await pause(0.002);
    }
    let confirmed = 0;
    for (const one of published) one.then(() => confirmed++, () => {});
    await Promise.all([...published, received]).catch((error) => {
      throw new Error(`${error.message}: ${confirmed} of ${count} confirmed, ${seen.size} received`);
    });
  },
};

const asked = (process.env.SCENARIOS ?? '').split(',').filter(Boolean);
for (const name of asked.length ? asked : Object.keys(scenarios)) {
  prefix = name;
  let [result, detail] = ['pass', ''];
  try {
    await scenarios[name]();
  } catch (error) {
    console.error(error);
    [result, detail] = ['fail', String(error)];
  }
  console.log(JSON.stringify({ scenario: name, result, detail }));
}
process.exit(0);
