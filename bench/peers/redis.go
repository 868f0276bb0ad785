package main

import (
	"errors"

	"github.com/gomodule/redigo/redis"
)

// Streams with a consumer group: XADD pipelined, XREADGROUP and XACK in batches.
type redisBroker struct {
	o      options
	conn   redis.Conn
	dues   chan int64
	queued int
}

const (
	redisStream   = "load"
	redisGroup    = "load"
	redisPipeline = 100
	redisCount    = 500
)

func (b *redisBroker) Setup() (err error) {
	if b.conn, err = redis.Dial("tcp", b.o.addresses[0]); err != nil {
		return err
	}
	if _, err = b.conn.Do("DEL", redisStream); err != nil {
		return err
	}
	_, err = b.conn.Do("XGROUP", "CREATE", redisStream, redisGroup, "0", "MKSTREAM")
	return err
}

func (b *redisBroker) StartPublisher(confirmed func(due int64)) error {
	b.dues = make(chan int64, 1<<20)
	go func() {
		for due := range b.dues {
			if _, err := b.conn.Receive(); err != nil {
				fail("redis publish", err)
			}
			confirmed(due)
		}
	}()
	return nil
}

func (b *redisBroker) Publish(body []byte, due int64) error {
	if err := b.conn.Send("XADD", redisStream, "*", "d", body); err != nil {
		return err
	}
	b.queued++
	b.dues <- due
	if b.queued >= redisPipeline {
		return b.Flush()
	}
	return nil
}

func (b *redisBroker) Flush() error {
	b.queued = 0
	return b.conn.Flush()
}

func (b *redisBroker) Consume(deliver func([]byte), ready func(), stop <-chan struct{}) error {
	conn, err := redis.Dial("tcp", b.o.addresses[0])
	if err != nil {
		return err
	}
	ready()
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		streams, err := redis.Values(conn.Do("XREADGROUP", "GROUP", redisGroup, "c", "COUNT", redisCount, "BLOCK", 200,
			"STREAMS", redisStream, ">"))
		if errors.Is(err, redis.ErrNil) {
			continue
		}
		if err != nil {
			return err
		}
		stream, err := redis.Values(streams[0], nil)
		if err != nil {
			return err
		}
		entries, err := redis.Values(stream[1], nil)
		if err != nil {
			return err
		}
		ids := redis.Args{redisStream, redisGroup}
		for _, entry := range entries {
			pair := entry.([]any)
			ids = append(ids, pair[0])
			deliver(pair[1].([]any)[1].([]byte))
		}
		if _, err := conn.Do("XACK", ids...); err != nil {
			return err
		}
	}
}
