// Command clients runs go-redis against a server: clients PORT. It connects as the client does by
// default, which is with RESP3.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Longer than any reply takes on a slow machine: who gives up asks again, and counts twice.
const patience = 2 * time.Minute

var ctx = context.Background()

func check(what string, got any, err error, want any) {
	if err != nil {
		panic(fmt.Sprintf("%s: %v", what, err))
	}
	if !reflect.DeepEqual(got, want) {
		panic(fmt.Sprintf("%s: got %#v, want %#v", what, got, want))
	}
}

func texts(r *redis.Client) {
	status, err := r.Set(ctx, "greeting", "hello", 0).Result()
	check("SET", status, err, "OK")
	text, err := r.Get(ctx, "greeting").Result()
	check("GET", text, err, "hello")
	if err := r.Get(ctx, "nothing").Err(); !errors.Is(err, redis.Nil) {
		panic(fmt.Sprintf("GET of nothing: %v", err))
	}
	isSet, err := r.SetNX(ctx, "greeting", "x", 0).Result()
	check("SETNX", isSet, err, false)
	text, err = r.SetArgs(ctx, "greeting", "again", redis.SetArgs{Get: true, TTL: 1000 * time.Second}).Result()
	check("SET GET", text, err, "hello")
	ttl, err := r.TTL(ctx, "greeting").Result()
	check("TTL", ttl > 990*time.Second, err, true)
	number, err := r.IncrBy(ctx, "count", 42).Result()
	check("INCRBY", number, err, int64(42))
	float, err := r.IncrByFloat(ctx, "share", 0.5).Result()
	check("INCRBYFLOAT", float, err, 0.5)
	status, err = r.MSet(ctx, "a", "1", "b", []byte{0, 255, 13, 10}).Result()
	check("MSET", status, err, "OK")
	values, err := r.MGet(ctx, "a", "b", "nothing").Result()
	check("MGET", values, err, []any{"1", "\x00\xff\r\n", nil})
	text, err = r.GetDel(ctx, "a").Result()
	check("GETDEL", text, err, "1")
	text, err = r.LCS(ctx, &redis.LCSQuery{Key1: "greeting", Key2: "greeting"}).Val().MatchString, nil
	check("LCS", text, err, "again")
	if err := r.Incr(ctx, "b").Err(); err == nil || !strings.Contains(err.Error(), "not an integer") {
		panic(fmt.Sprintf("INCR of a text: %v", err))
	}
}

func bitmaps(r *redis.Client) {
	bit, err := r.SetBit(ctx, "bits", 7, 1).Result()
	check("SETBIT", bit, err, int64(0))
	count, err := r.BitCount(ctx, "bits", nil).Result()
	check("BITCOUNT", count, err, int64(1))
	position, err := r.BitPos(ctx, "bits", 1).Result()
	check("BITPOS", position, err, int64(7))
	fields, err := r.BitField(ctx, "f", "SET", "u8", 0, 200, "GET", "u4", 0).Result()
	check("BITFIELD", fields, err, []int64{0, 12})
}

func keys(r *redis.Client) {
	pipe := r.Pipeline()
	for number := 0; number < 1000; number++ {
		pipe.Set(ctx, fmt.Sprintf("many:%d", number), number, 0)
	}
	_, err := pipe.Exec(ctx)
	check("pipeline", nil, err, nil)
	found := map[string]bool{}
	iterator := r.Scan(ctx, 0, "many:*", 100).Iterator()
	for iterator.Next(ctx) {
		found[iterator.Val()] = true
	}
	check("SCAN", len(found), iterator.Err(), 1000)
	status, err := r.Rename(ctx, "bits", "renamed").Result()
	check("RENAME", status, err, "OK")
	copied, err := r.Copy(ctx, "renamed", "copied", 0, false).Result()
	check("COPY", copied, err, int64(1))
	isSet, err := r.PExpireAt(ctx, "copied", time.UnixMilli(4_000_000_000_000)).Result()
	check("PEXPIREAT", isSet, err, true)
	at, err := r.PExpireTime(ctx, "copied").Result()
	check("PEXPIRETIME", at, err, 4_000_000_000_000*time.Millisecond)
	encoding, err := r.ObjectEncoding(ctx, "count").Result()
	check("OBJECT ENCODING", encoding, err, "int")
	removed, err := r.Unlink(ctx, "copied", "renamed").Result()
	check("UNLINK", removed, err, int64(2))
}

func listsAndHashes(r *redis.Client) {
	pushed, err := r.RPush(ctx, "list", "a", "b", 3).Result()
	check("RPUSH", pushed, err, int64(3))
	elements, err := r.LRange(ctx, "list", 0, -1).Result()
	check("LRANGE", elements, err, []string{"a", "b", "3"})
	moved, err := r.LMove(ctx, "list", "other", "LEFT", "RIGHT").Result()
	check("LMOVE", moved, err, "a")
	name, popped, err := r.LMPop(ctx, "LEFT", 5, "nothing", "other").Result()
	check("LMPOP", append(popped, name), err, []string{"a", "other"})
	added, err := r.HSet(ctx, "hash", "a", 1, "b", "two").Result()
	check("HSET", added, err, int64(2))
	all, err := r.HGetAll(ctx, "hash").Result()
	check("HGETALL", all, err, map[string]string{"a": "1", "b": "two"})
	sum, err := r.HIncrByFloat(ctx, "hash", "a", 0.5).Result()
	check("HINCRBYFLOAT", sum, err, 1.5)
	set, err := r.HPExpireAt(ctx, "hash", time.UnixMilli(4_000_000_000_000), "a", "c").Result()
	check("HPEXPIREAT", set, err, []int64{1, -2})
	at, err := r.HPExpireTime(ctx, "hash", "a", "b").Result()
	check("HPEXPIRETIME", at, err, []int64{4_000_000_000_000, -1})
}

func setsAndSortedSets(r *redis.Client) {
	check("SADD", nil, r.SAdd(ctx, "set", 1, 2, 3).Err(), nil)
	check("SADD", nil, r.SAdd(ctx, "more", 3, 4).Err(), nil)
	members, err := r.SMembers(ctx, "set").Result()
	check("SMEMBERS", members, err, []string{"1", "2", "3"})
	common, err := r.SInter(ctx, "set", "more").Result()
	check("SINTER", common, err, []string{"3"})
	card, err := r.SInterCard(ctx, 1, "set", "more").Result()
	check("SINTERCARD", card, err, int64(1))
	are, err := r.SMIsMember(ctx, "set", 1, 9).Result()
	check("SMISMEMBER", are, err, []bool{true, false})
	added, err := r.ZAdd(ctx, "sorted", redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2.5, Member: "b"}).Result()
	check("ZADD", added, err, int64(2))
	sorted, err := r.ZRangeWithScores(ctx, "sorted", 0, -1).Result()
	check("ZRANGE", sorted, err, []redis.Z{{Score: 1, Member: "a"}, {Score: 2.5, Member: "b"}})
	rank, err := r.ZRankWithScore(ctx, "sorted", "b").Result()
	check("ZRANK", rank, err, redis.RankScore{Rank: 1, Score: 2.5})
	union, err := r.ZUnionStore(ctx, "union", &redis.ZStore{Keys: []string{"sorted", "set"}}).Result()
	check("ZUNIONSTORE", union, err, int64(5))
	least, err := r.ZPopMin(ctx, "sorted").Result()
	check("ZPOPMIN", least, err, []redis.Z{{Score: 1, Member: "a"}})
}

func streams(r *redis.Client) {
	id, err := r.XAdd(ctx, &redis.XAddArgs{Stream: "stream", ID: "5-1", Values: []string{"a", "1"}}).Result()
	check("XADD", id, err, "5-1")
	entry := redis.XMessage{ID: "5-1", Values: map[string]any{"a": "1"}}
	entries, err := r.XRange(ctx, "stream", "-", "+").Result()
	check("XRANGE", entries, err, []redis.XMessage{entry})
	check("XGROUP", nil, r.XGroupCreate(ctx, "stream", "group", "0").Err(), nil)
	read := &redis.XReadGroupArgs{Group: "group", Consumer: "alice", Streams: []string{"stream", ">"}, Block: -1}
	delivered, err := r.XReadGroup(ctx, read).Result()
	check("XREADGROUP", delivered, err, []redis.XStream{{Stream: "stream", Messages: []redis.XMessage{entry}}})
	pending, err := r.XPending(ctx, "stream", "group").Result()
	check("XPENDING", pending.Consumers, err, map[string]int64{"alice": 1})
	groups, err := r.XInfoGroups(ctx, "stream").Result()
	check("XINFO GROUPS", groups[0].LastDeliveredID, err, "5-1")
	acknowledged, err := r.XAck(ctx, "stream", "group", "5-1").Result()
	check("XACK", acknowledged, err, int64(1))
}

func sketchesPlacesAndPayloads(r *redis.Client) {
	check("PFADD", nil, r.PFAdd(ctx, "sketch", "a", "b", "c").Err(), nil)
	count, err := r.PFCount(ctx, "sketch").Result()
	check("PFCOUNT", count, err, int64(3))
	place := &redis.GeoLocation{Name: "Catania", Longitude: 15.087269, Latitude: 37.502669}
	check("GEOADD", nil, r.GeoAdd(ctx, "places", place).Err(), nil)
	near := &redis.GeoSearchQuery{Longitude: 15, Latitude: 37, Radius: 100, RadiusUnit: "km"}
	found, err := r.GeoSearch(ctx, "places", near).Result()
	check("GEOSEARCH", found, err, []string{"Catania"})
	sorted, err := r.Sort(ctx, "set", &redis.Sort{Order: "DESC"}).Result()
	check("SORT", sorted, err, []string{"3", "2", "1"})
	for _, key := range []string{"list", "hash", "set", "sorted", "stream", "sketch"} {
		payload, err := r.Dump(ctx, key).Result()
		check("DUMP", nil, err, nil)
		status, err := r.RestoreReplace(ctx, "restored", 0, payload).Result()
		check("RESTORE", status, err, "OK")
		again, err := r.Dump(ctx, "restored").Result()
		check("DUMP", again, err, payload)
	}
}

func connection(r *redis.Client) {
	pong, err := r.Ping(ctx).Result()
	check("PING", pong, err, "PONG")
	hello, err := r.Do(ctx, "HELLO", "3").Result()
	check("HELLO", hello.(map[any]any)["proto"], err, int64(3))
	settings, err := r.ConfigGet(ctx, "maxmemory").Result()
	_, isThere := settings["maxmemory"]
	check("CONFIG GET", isThere, err, true)
	info, err := r.Info(ctx).Result()
	check("INFO", strings.Contains(info, "redis_version:"), err, true)
	commands, err := r.Command(ctx).Result()
	check("COMMAND", commands["get"] != nil && commands["get"].ReadOnly, err, true)
	if err := r.Do(ctx, "NONSENSE").Err(); err == nil || !strings.Contains(err.Error(), "unknown command") {
		panic(fmt.Sprintf("NONSENSE: %v", err))
	}
}

func transactions(r *redis.Client) {
	replies, err := r.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "t", 0, 0)
		pipe.Incr(ctx, "t")
		return nil
	})
	check("MULTI", len(replies), err, 2)
	var group sync.WaitGroup
	for worker := 0; worker < 4; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for count := 0; count < 25; count++ {
				incrementWatched(r)
			}
		}()
	}
	group.Wait()
	total, err := r.Get(ctx, "t").Int()
	check("WATCH by many", total, err, 101)
}

func incrementWatched(r *redis.Client) {
	for {
		err := r.Watch(ctx, func(tx *redis.Tx) error {
			value, err := tx.Get(ctx, "t").Int()
			if err != nil {
				return err
			}
			_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Set(ctx, "t", value+1, 0)
				return nil
			})
			return err
		}, "t")
		if err == nil {
			return
		}
		if !errors.Is(err, redis.TxFailedErr) {
			panic(err)
		}
	}
}

func waiting(r *redis.Client) {
	check("DEL", nil, r.Del(ctx, "none", "queue", "ranking", "log").Err(), nil)
	pushed := make(chan error)
	go func() { pushed <- r.RPush(ctx, "queue", "job").Err() }()
	popped, err := r.BLPop(ctx, 0, "none", "queue").Result()
	check("BLPOP", popped, err, []string{"queue", "job"})
	check("RPUSH", nil, <-pushed, nil)
	go func() { pushed <- r.ZAdd(ctx, "ranking", redis.Z{Score: 1.5, Member: "a"}).Err() }()
	first, err := r.BZPopMin(ctx, 0, "ranking").Result()
	check("BZPOPMIN", first.Key+first.Member.(string), err, "rankinga")
	check("ZADD", nil, <-pushed, nil)
	check("XGROUP", nil, r.XGroupCreateMkStream(ctx, "log", "readers", "$").Err(), nil)
	go func() {
		pushed <- r.XAdd(ctx, &redis.XAddArgs{Stream: "log", Values: []string{"f", "v"}}).Err()
	}()
	streams, err := r.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: "readers", Consumer: "one", Streams: []string{"log", ">"}, Block: 0,
	}).Result()
	check("XREADGROUP", streams[0].Messages[0].Values["f"], err, "v")
	check("XADD", nil, <-pushed, nil)
}

func subscriptions(r *redis.Client) {
	messages := r.Subscribe(ctx, "news")
	defer messages.Close()
	if _, err := messages.Receive(ctx); err != nil {
		panic(err)
	}
	check("PSUBSCRIBE", nil, messages.PSubscribe(ctx, "n*"), nil)
	if _, err := messages.Receive(ctx); err != nil {
		panic(err)
	}
	count, err := r.Publish(ctx, "news", "hello").Result()
	check("PUBLISH", count, err, int64(2))
	for _, pattern := range []string{"", "n*"} {
		message, err := messages.ReceiveMessage(ctx)
		check("message", message.Pattern+message.Channel+message.Payload, err, pattern+"newshello")
	}
	check("PING", nil, messages.Ping(ctx, "there"), nil)
	pong, err := messages.Receive(ctx)
	check("PONG", pong.(*redis.Pong).Payload, err, "there")
}

func manyAtOnce(r *redis.Client) {
	var group sync.WaitGroup
	for worker := 0; worker < 16; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for count := 0; count < 250; count++ {
				if err := r.Incr(ctx, "shared").Err(); err != nil {
					panic(err)
				}
			}
		}()
	}
	group.Wait()
	total, err := r.Get(ctx, "shared").Int()
	check("INCR by many", total, err, 4000)
}

func main() {
	address := "127.0.0.1:" + os.Args[1]
	for _, version := range []int{0, 2} {
		r := redis.NewClient(&redis.Options{Addr: address, Protocol: version, ClientName: "tester", ReadTimeout: patience, PoolTimeout: patience})
		check("FLUSHALL", nil, r.FlushAll(ctx).Err(), nil)
		texts(r)
		bitmaps(r)
		keys(r)
		listsAndHashes(r)
		setsAndSortedSets(r)
		streams(r)
		sketchesPlacesAndPayloads(r)
		if version == 0 {
			connection(r)
		}
		manyAtOnce(r)
		transactions(r)
		waiting(r)
		subscriptions(r)
		other := redis.NewClient(&redis.Options{Addr: address, DB: 5, Protocol: version, ReadTimeout: patience})
		check("SET in 5", nil, other.Set(ctx, "only", "here", 0).Err(), nil)
		exists, err := r.Exists(ctx, "only").Result()
		check("EXISTS in 0", exists, err, int64(0))
		check("close", nil, other.Close(), nil)
		check("close", nil, r.Close(), nil)
	}
	fmt.Println("go-redis, RESP3 and RESP2: passed")
}
