// What a program that publishes and receives learns first with the official client for Node.js.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { client, numbers, pair } from './client.mjs';

const PUBLISHED = 20;

test('the answer to a publish comes before its message', async () => {
  const [topic, subscription] = await pair(client());
  const known = new Set();
  let early = 0;
  let tell = () => {};
  subscription.on('message', (message) => {
    if (!known.has(message.id)) early += 1;
    message.ack();
    tell();
  });
  for (const data of numbers(PUBLISHED)) {
    const received = new Promise((resolve) => {
      tell = resolve;
    });
    known.add(await topic.publishMessage({ data: Buffer.from(data) }));
    await received;
  }
  await subscription.close();
  // A process that was held up for long enough finds both, and then it is the client that decides.
  assert.ok(early <= PUBLISHED / 4, `${early} of ${PUBLISHED} messages came before the answers to their publishes`);
});
