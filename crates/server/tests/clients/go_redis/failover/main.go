// Command failover runs go-redis over a failover of a group: PORTS of Sentinels and the PASSWORD are in the environment.
//
// Each client writes keys one after another. When it is ready the program says so; a line of input says that the primary was
// lost. What was confirmed is read back then.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	name = "mymaster"
	// Writes that are confirmed before the failover, and that begin after it and are.
	keys = 100
	// No client needs as much; a busy machine fails nothing.
	patience = time.Minute
)

var (
	ctx    = context.Background()
	isLost atomic.Bool
	lostAt time.Time
	// Closed once lostAt counts.
	lost = make(chan struct{})
)

func expect(isSo bool, format string, args ...any) {
	if !isSo {
		panic(fmt.Sprintf(format, args...))
	}
}

// write has a client write: the numbers that were confirmed.
func write(client string, r redis.Cmdable, ready, failed func()) []int {
	var confirmed []int
	var gap time.Duration
	errors := 0
	for number, after := 1, 0; after < keys; number++ {
		isAfter := isLost.Load()
		err := r.Set(ctx, key(client, number), number, 0).Err()
		if err == nil {
			confirmed = append(confirmed, number)
			if isAfter {
				after++
				if gap == 0 {
					gap = time.Since(lostAt)
				}
			}
		} else {
			// The connection may be gone before this program is told why.
			select {
			case <-lost:
			case <-time.After(5 * time.Second):
				panic(fmt.Sprintf("%s: %v before the failover", client, err))
			}
			expect(time.Since(lostAt) < patience, "%s: %v", client, err)
			errors++
			failed()
			time.Sleep(50 * time.Millisecond)
		}
		if number == keys {
			ready()
		}
		time.Sleep(2 * time.Millisecond)
	}
	fmt.Printf("%s: writes again after %.1f s and %d errors, %d keys\n", client, gap.Seconds(), errors, len(confirmed))
	return confirmed
}

func key(client string, number int) string {
	return client + ":" + strconv.Itoa(number)
}

// read has a client read what was confirmed; where a replica is asked, it may be behind for a moment.
func read(client string, r redis.Cmdable, confirmed []int, isReplica bool) {
	end := time.Now().Add(patience)
	for _, number := range confirmed {
		for {
			got, err := r.Get(ctx, key(client, number)).Int()
			if err == nil && got == number {
				break
			}
			expect(isReplica && time.Now().Before(end), "%s: %d was confirmed: got %d, %v", client, number, got, err)
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func options() *redis.FailoverOptions {
	var places []string
	for _, port := range strings.Fields(os.Getenv("PORTS")) {
		places = append(places, "127.0.0.1:"+port)
	}
	password := os.Getenv("PASSWORD")
	return &redis.FailoverOptions{
		MasterName:       name,
		SentinelAddrs:    places,
		SentinelPassword: password,
		Password:         password,
	}
}

func failoverClient(ready func()) {
	client := "NewFailoverClient"
	primary := redis.NewFailoverClient(options())
	defer primary.Close()
	confirmed := write(client, primary, ready, func() {})
	read(client, primary, confirmed, false)
	toReplica := options()
	toReplica.ReplicaOnly = true
	replica := redis.NewFailoverClient(toReplica)
	defer replica.Close()
	role, err := replica.Do(ctx, "ROLE").Slice()
	expect(err == nil && role[0] == "slave", "ROLE of a replica: %v, %v", role, err)
	read(client, replica, confirmed, true)
}

func failoverClusterClient(ready func()) {
	client := "NewFailoverClusterClient"
	byReplicas := options()
	byReplicas.RouteRandomly = true
	both := redis.NewFailoverClusterClient(byReplicas)
	defer both.Close()
	// It hears of another primary from one Sentinel, and where that is lost too looks again after a minute only.
	confirmed := write(client, both, ready, func() { both.ReloadState(ctx) })
	read(client, both, confirmed, true)
}

func main() {
	clients := []func(func()){failoverClient, failoverClusterClient}
	var writing, running sync.WaitGroup
	writing.Add(len(clients))
	for _, client := range clients {
		running.Go(func() { client(writing.Done) })
	}
	writing.Wait()
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	lostAt = time.Now()
	isLost.Store(true)
	close(lost)
	running.Wait()
}
