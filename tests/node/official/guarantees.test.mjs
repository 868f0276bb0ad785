// Ordering keys, exactly-once acknowledgements, seek and the admin calls with the official client for Node.js.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { client, eventually, listen, numbers, pair } from './client.mjs';

test('messages of one key come in order', async () => {
  const pubsub = client();
  const [, subscription] = await pair(pubsub, { enableMessageOrdering: true });
  const topic = pubsub.topic('topic', { messageOrdering: true });
  const keys = ['a', 'b', 'c'];
  const inbox = listen(subscription);
  const publishing = numbers(100).flatMap((data) =>
    keys.map((orderingKey) => topic.publishMessage({ data: Buffer.from(data), orderingKey })),
  );
  await Promise.all(publishing);
  await eventually(() => inbox.messages.length >= 300, '300 messages');
  for (const key of keys) {
    const got = inbox.messages.filter((one) => one.orderingKey === key).map((one) => one.data.toString());
    assert.deepEqual(got, numbers(100), `key ${key}`);
  }
  await subscription.close();
});

test('a nack brings later messages of the key again, in order', async () => {
  const pubsub = client();
  const [, subscription] = await pair(pubsub, { enableMessageOrdering: true });
  const topic = pubsub.topic('topic', { messageOrdering: true });
  let threes = 0;
  const acked = [];
  const inbox = listen(subscription, (message) => {
    const data = message.data.toString();
    if (data === '3' && ++threes === 1) {
      message.nack();
    } else if (data < '3' || threes > 1) {
      acked.push(data);
      message.ack();
    } // what came after the nacked one is held, and taken back by the service
  });
  for (const data of numbers(8)) await topic.publishMessage({ data: Buffer.from(data), orderingKey: 'k' });
  await eventually(() => new Set(acked).size === 8, 'all are acknowledged');
  const bodies = inbox.bodies();
  const again = bodies.indexOf('3', bodies.indexOf('3') + 1);
  assert.deepEqual([...new Set(bodies.slice(again))], ['3', '4', '5', '6', '7']);
  await subscription.close();
});

test('exactly-once acknowledgements are confirmed, and old ones refused', async () => {
  const [topic, subscription] = await pair(client(), { enableExactlyOnceDelivery: true });
  const outcomes = [];
  const held = [];
  const inbox = listen(subscription, (message) => {
    held.push(message);
    message.ackWithResponse().then(
      (response) => outcomes.push(response),
      (error) => outcomes.push(`failed: ${error}`),
    );
  });
  await Promise.all(numbers(50).map((data) => topic.publishMessage({ data: Buffer.from(data) })));
  await eventually(() => outcomes.length === 50, '50 outcomes');
  assert.deepEqual([...new Set(outcomes)], ['SUCCESS']);
  const last = await topic.publishMessage({ data: Buffer.from('barrier') });
  await eventually(() => inbox.messages.some((one) => one.id === last), 'the barrier');
  assert.equal(inbox.messages.length, 51, 'nothing came twice');
  await subscription.close();
});

test('a seek to the publish time of a message brings it again while the stream is open', async () => {
  const [topic, subscription] = await pair(client(), { retainAckedMessages: true });
  let moved = false;
  const inbox = listen(subscription, (message) => {
    message.ack();
    if (!moved) {
      moved = true;
      setTimeout(() => subscription.seek(message.publishTime), 200);
    }
  });
  const id = await topic.publishMessage({ data: Buffer.from('again') });
  await eventually(() => inbox.messages.length >= 2, 'the second delivery');
  assert.deepEqual([...new Set(inbox.messages.map((one) => one.id))], [id]);
  await subscription.close();
});

test('a snapshot brings back what was acknowledged after it', async () => {
  const [topic, subscription] = await pair(client());
  const [snapshot] = await subscription.createSnapshot('snap');
  const inbox = listen(subscription);
  await topic.publishMessage({ data: Buffer.from('x') });
  await eventually(() => inbox.messages.length === 1, 'the message');
  await snapshot.seek();
  await eventually(() => inbox.messages.length >= 2, 'the second delivery');
  await snapshot.delete();
  await subscription.close();
});

test('lists, metadata and errors of the admin calls', async () => {
  const pubsub = client();
  const [topic, subscription] = await pair(pubsub, { ackDeadlineSeconds: 44, labels: { a: 'b' } });
  const [topics] = await pubsub.getTopics();
  assert.deepEqual(topics.map((one) => one.name), [topic.name]);
  const [page] = await pubsub.getTopics({ pageSize: 1, autoPaginate: false });
  assert.equal(page.length, 1);
  const [subscriptions] = await topic.getSubscriptions();
  assert.deepEqual(subscriptions.map((one) => one.name), [subscription.name]);
  const [metadata] = await subscription.getMetadata();
  assert.equal(metadata.ackDeadlineSeconds, 44);
  assert.deepEqual(metadata.labels, { a: 'b' });
  await subscription.setMetadata({ ackDeadlineSeconds: 55 });
  assert.equal((await subscription.getMetadata())[0].ackDeadlineSeconds, 55);
  assert.deepEqual(await pubsub.topic('missing').exists(), [false]);
  await assert.rejects(pubsub.createTopic('topic'), { code: 6 });
  await assert.rejects(pubsub.subscription('missing').getMetadata(), { code: 5 });
  await subscription.delete();
  await topic.delete();
  assert.deepEqual(await topic.exists(), [false]);
});

test('a filter and a dead letter policy are kept', async () => {
  const pubsub = client();
  const [dead] = await pubsub.createTopic('dead');
  const [topic, subscription] = await pair(pubsub, {
    filter: 'attributes.k = "v"',
    deadLetterPolicy: { deadLetterTopic: dead.name, maxDeliveryAttempts: 5 },
  });
  const [letters] = await dead.createSubscription('letters');
  const inbox = listen(subscription, 'nack');
  const lost = listen(letters);
  await topic.publishMessage({ data: Buffer.from('no') });
  await topic.publishMessage({ data: Buffer.from('yes'), attributes: { k: 'v' } });
  await eventually(() => lost.messages.length === 1, 'the dead letter');
  assert.deepEqual([...new Set(inbox.bodies())], ['yes']);
  assert.deepEqual(inbox.messages.map((one) => one.deliveryAttempt), [1, 2, 3, 4, 5]);
  assert.equal(lost.messages[0].attributes.CloudPubSubDeadLetterSourceDeliveryCount, '5');
  await Promise.all([subscription.close(), letters.close()]);
});
