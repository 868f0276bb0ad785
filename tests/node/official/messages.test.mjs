// Publishing, receiving, acknowledging, and flow control with the official client for Node.js.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { client, eventually, listen, numbers, pair } from './client.mjs';

test('publish, receive and acknowledge', async () => {
  const [topic, subscription] = await pair(client());
  const inbox = listen(subscription);
  const ids = await Promise.all(
    numbers(500).map((data) => topic.publishMessage({ data: Buffer.from(data), attributes: { n: data } })),
  );
  assert.equal(new Set(ids).size, 500);
  await eventually(() => inbox.messages.length >= 500, '500 messages');
  const last = await topic.publishMessage({ data: Buffer.from('barrier') });
  await eventually(() => inbox.messages.some((one) => one.id === last), 'the barrier');
  assert.equal(inbox.messages.length, 501, 'nothing came twice');
  for (const one of inbox.messages.slice(0, 500)) assert.equal(one.attributes.n ?? 'barrier', one.data.toString());
  assert.deepEqual([...new Set(inbox.messages.map((one) => one.id))].sort(), [...ids, last].sort());
  assert.deepEqual(inbox.errors, []);
  await subscription.close();
});

test('what was acknowledged is gone for the next receiver', async () => {
  const pubsub = client();
  const [topic, subscription] = await pair(pubsub);
  const first = listen(subscription);
  await topic.publishMessage({ data: Buffer.from('once') });
  await eventually(() => first.messages.length === 1, 'the message');
  await subscription.close(); // flushes the acks
  const again = pubsub.subscription('sub');
  const second = listen(again);
  const last = await topic.publishMessage({ data: Buffer.from('barrier') });
  await eventually(() => second.messages.some((one) => one.id === last), 'the barrier');
  assert.deepEqual(second.bodies(), ['barrier']);
  await again.close();
});

test('a nacked message comes again', async () => {
  const [topic, subscription] = await pair(client());
  const inbox = listen(subscription, (message, count) => (count < 3 ? message.nack() : message.ack()));
  const id = await topic.publishMessage({ data: Buffer.from('again') });
  await eventually(() => inbox.messages.length === 3, 'three deliveries');
  assert.deepEqual([...new Set(inbox.messages.map((one) => one.id))], [id]);
  assert.equal(new Set(inbox.messages.map((one) => one.ackId)).size, 3);
  await subscription.close();
});

test('flow control holds messages back until they are acknowledged', async () => {
  const pubsub = client();
  const [topic] = await pair(pubsub);
  const subscription = pubsub.subscription('sub', {
    flowControl: { maxMessages: 5, allowExcessMessages: false },
    streamingOptions: { maxStreams: 1 },
  });
  await Promise.all(numbers(40).map((data) => topic.publishMessage({ data: Buffer.from(data) })));
  const held = [];
  const done = [];
  let most = 0;
  subscription.on('message', (message) => {
    held.push(message);
    most = Math.max(most, held.length);
    setImmediate(() => {
      for (const one of held.splice(0)) {
        one.ack();
        done.push(one.data.toString());
      }
    });
  });
  await eventually(() => done.length === 40, 'all messages');
  assert.ok(most <= 5, `${most} messages at a time`);
  assert.deepEqual(done.map(Number).sort((a, b) => a - b), numbers(40).map(Number));
  await subscription.close();
});

test('two receivers share a subscription', async () => {
  const pubsub = client();
  const [topic] = await pair(pubsub);
  const options = { flowControl: { maxMessages: 10 } };
  const receivers = [pubsub.subscription('sub', options), pubsub.subscription('sub', options)];
  const inboxes = receivers.map((one) => listen(one));
  const ids = await Promise.all(numbers(400).map((data) => topic.publishMessage({ data: Buffer.from(data) })));
  await eventually(() => inboxes[0].messages.length + inboxes[1].messages.length >= 400, 'all messages');
  const got = inboxes.flatMap((inbox) => inbox.messages.map((one) => one.id));
  assert.deepEqual(got.sort(), ids.sort());
  await Promise.all(receivers.map((one) => one.close()));
});

test('listening to a missing subscription is an error that names it', async () => {
  const subscription = client().subscription('missing');
  const inbox = listen(subscription);
  await eventually(() => inbox.errors.length > 0, 'an error');
  assert.match(inbox.errors[0].message, /Resource not found/);
  assert.equal(inbox.errors[0].code, 5);
  await subscription.close();
});

test('deleting the subscription ends the receiver with an error', async () => {
  const pubsub = client();
  const [topic, subscription] = await pair(pubsub);
  const inbox = listen(subscription);
  await topic.publishMessage({ data: Buffer.from('x') });
  await eventually(() => inbox.messages.length === 1, 'the message');
  await pubsub.subscription('sub').delete();
  await eventually(() => inbox.errors.length > 0, 'an error');
  assert.equal(inbox.errors[0].code, 5);
  await subscription.close();
});
