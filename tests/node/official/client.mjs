// What every test file shares: the client (version by PUBSUB_CLIENT), a project of its own, and waits that end.
//
// PUBSUB_EMULATOR_HOST names the server, as for any program that uses the official client.
import { randomBytes } from 'node:crypto';
import { after } from 'node:test';

const library = await import(process.env.PUBSUB_CLIENT ?? '@google-cloud/pubsub');
export const { PubSub } = library.default?.PubSub ? library.default : library;

const clients = [];

export function client() {
  const made = new PubSub({ projectId: `p${randomBytes(8).toString('hex')}` });
  clients.push(made);
  return made;
}

after(async () => {
  await Promise.all(clients.map((one) => one.close()));
});

// A topic with one subscription; options are those of createSubscription.
export async function pair(pubsub, options = {}) {
  const [topic] = await pubsub.createTopic('topic');
  const [subscription] = await topic.createSubscription('sub', options);
  return [topic, subscription];
}

// Poll until `holds()` is true, for at most `within` seconds.
export async function eventually(holds, what, within = 30) {
  const end = Date.now() + within * 1000;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`not within ${within} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

// Listen and keep what comes; `act` is what is done with each message ('ack', 'nack', or a function).
export function listen(subscription, act = 'ack') {
  const messages = [];
  const errors = [];
  subscription.on('error', (error) => errors.push(error));
  subscription.on('message', (message) => {
    messages.push(message);
    if (typeof act === 'function') act(message, messages.length);
    else if (act) message[act]();
  });
  return { messages, errors, bodies: () => messages.map((message) => message.data.toString()) };
}

export const numbers = (count) => Array.from({ length: count }, (_, number) => String(number));
