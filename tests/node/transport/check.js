// gRPC's own client for Node.js against a running transport: `node check.js HOST:PORT`. Exits with 0 when all is as it should be.
import assert from 'node:assert/strict';
import grpc from '@grpc/grpc-js';

const same = (bytes) => bytes;
const client = new grpc.Client(process.argv[2], grpc.credentials.createInsecure(), {
  'grpc.max_receive_message_length': -1,
  'grpc.max_send_message_length': -1,
});
const deadline = () => ({ deadline: Date.now() + 20_000 });

function unary(path, request, options = deadline(), metadata = new grpc.Metadata()) {
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest(path, same, same, request, metadata, options, (error, answer) =>
      error ? reject(error) : resolve(answer));
  });
}

async function collect(stream) {
  const got = [];
  for await (const message of stream) got.push(message);
  return got;
}

for (const size of [0, 1, 16_384, 100_000, 10_000_000]) {
  assert.equal((await unary('/t.T/Echo', Buffer.alloc(size))).length, size);
}
const many = await Promise.all(Array.from({ length: 500 }, (_, i) => unary('/t.T/Echo', Buffer.from(`${i}`))));
assert.deepEqual(many.map(String), Array.from({ length: 500 }, (_, i) => `${i}`));

const metadata = new grpc.Metadata();
metadata.set('x-t-bin', Buffer.from([0, 255]));
assert.deepEqual([...await unary('/t.T/Meta', Buffer.from('x-t-bin'), deadline(), metadata)], [0, 255]);

const bad = await unary('/t.T/Bad', Buffer.alloc(0)).catch((error) => error);
assert.equal(bad.code, grpc.status.INVALID_ARGUMENT);
assert.equal(bad.details, 'nö: 100 %');
assert.equal(bad.metadata.get('grpc-status-details-bin').length, 1);
const none = await unary('/t.T/None', Buffer.alloc(0)).catch((error) => error);
assert.equal(none.code, grpc.status.UNIMPLEMENTED);
const slow = await unary('/t.T/Slow', Buffer.alloc(0), { deadline: Date.now() + 200 }).catch((error) => error);
assert.equal(slow.code, grpc.status.DEADLINE_EXCEEDED);

const flood = await collect(client.makeServerStreamRequest('/t.T/Flood', same, same, Buffer.alloc(0), deadline()));
assert.equal(flood.length, 300);
assert.equal(flood.reduce((sum, message) => sum + message.length, 0), 300 * 50_000);

const chat = client.makeBidiStreamRequest('/t.T/Chat', same, same, deadline());
for (let i = 0; i < 100; i += 1) chat.write(Buffer.alloc(i * 500));
chat.end();
assert.deepEqual((await collect(chat)).map((message) => message.length), Array.from({ length: 100 }, (_, i) => i * 500));

const left = client.makeBidiStreamRequest('/t.T/Hold', same, same, deadline());
left.on('error', () => {});
left.write(Buffer.from('x'));
await new Promise((resolve) => left.once('data', resolve));
left.cancel();
while ((await unary('/t.T/Cancelled', Buffer.alloc(0))).toString() !== '1') await new Promise((r) => setTimeout(r, 10));

// The server ends this one while we still write: its status must come through.
const ended = client.makeBidiStreamRequest('/t.T/Refuse', same, same, deadline());
ended.write(Buffer.alloc(200_000));
const refused = await collect(ended).catch((error) => error);
assert.equal(refused.code, grpc.status.FAILED_PRECONDITION);
client.close();
console.log('ok');
