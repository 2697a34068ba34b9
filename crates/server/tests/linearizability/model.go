package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

const (
	keysCount    = 5
	clientsCount = 4
	absent       = -1
)

// The whole server: what the keys hold, which of them each client watches, and whose watch was broken.
type state struct {
	values  [keysCount]int32
	watched [clientsCount][keysCount]bool
	broken  [clientsCount]bool
}

var model = porcupine.Model{
	Init: func() any {
		var empty state
		for key := range empty.values {
			empty.values[key] = absent
		}
		return empty
	},
	Step: func(before, input, output any) (bool, any) {
		after := before.(state)
		one := input.(record)
		return after.step(one) == output.(string), after
	},
	DescribeOperation: func(input, output any) string {
		one := input.(record)
		return fmt.Sprintf("%s %v: %s", one.Kind, one.Commands, output)
	},
}

// Does an operation and gives its reply, written as transcripts write replies.
func (s *state) step(one record) string {
	switch one.Kind {
	case "run":
		return s.run(one.Commands[0])
	case "watch":
		if !s.broken[one.Client] {
			for _, name := range one.Commands[0][1:] {
				s.watched[one.Client][key(name)] = true
			}
		}
		return "+OK"
	case "unwatch":
		s.unwatch(one.Client)
		return "+OK"
	case "exec":
		wasBroken := s.broken[one.Client]
		s.unwatch(one.Client)
		if wasBroken {
			return "(nil-array)"
		}
		replies := make([]string, len(one.Commands))
		for number, command := range one.Commands {
			replies[number] = s.run(command)
		}
		return "[" + strings.Join(replies, ", ") + "]"
	}
	panic("unknown kind " + one.Kind)
}

func (s *state) unwatch(client int) {
	s.watched[client] = [keysCount]bool{}
	s.broken[client] = false
}

// Makes a key hold a value, or none, which breaks the watches of it.
func (s *state) change(key int, value int32) {
	s.values[key] = value
	for client := range s.watched {
		if s.watched[client][key] {
			s.broken[client] = true
		}
	}
}

func (s *state) run(command []string) string {
	switch command[0] {
	case "GET":
		return s.show(key(command[1]))
	case "SET":
		s.change(key(command[1]), number(command[2]))
		return "+OK"
	case "GETSET":
		before := s.show(key(command[1]))
		s.change(key(command[1]), number(command[2]))
		return before
	case "SETNX":
		if s.values[key(command[1])] != absent {
			return ":0"
		}
		s.change(key(command[1]), number(command[2]))
		return ":1"
	case "INCR":
		at := key(command[1])
		s.change(at, max(s.values[at], 0)+1)
		return ":" + strconv.Itoa(int(s.values[at]))
	case "DEL":
		count := 0
		for _, name := range command[1:] {
			if at := key(name); s.values[at] != absent {
				s.change(at, absent)
				count++
			}
		}
		return ":" + strconv.Itoa(count)
	case "MGET":
		var values []string
		for _, name := range command[1:] {
			values = append(values, s.show(key(name)))
		}
		return "[" + strings.Join(values, ", ") + "]"
	case "MSET":
		for at := 1; at < len(command); at += 2 {
			s.change(key(command[at]), number(command[at+1]))
		}
		return "+OK"
	case "RENAME":
		from, to := key(command[1]), key(command[2])
		if s.values[from] == absent {
			return "-ERR no such key"
		}
		if from != to {
			value := s.values[from]
			s.change(from, absent)
			s.change(to, value)
		}
		return "+OK"
	case "COPY":
		from, to := key(command[1]), key(command[2])
		if s.values[from] == absent {
			return ":0"
		}
		s.change(to, s.values[from])
		return ":1"
	case "DBSIZE":
		count := 0
		for _, value := range s.values {
			if value != absent {
				count++
			}
		}
		return ":" + strconv.Itoa(count)
	case "FLUSHDB":
		for at, value := range s.values {
			if value != absent {
				s.change(at, absent)
			}
		}
		return "+OK"
	}
	panic("unknown command " + command[0])
}

// The value of a key as a reply.
func (s *state) show(key int) string {
	if s.values[key] == absent {
		return "(nil)"
	}
	return `"` + strconv.Itoa(int(s.values[key])) + `"`
}

// The key with a name such as "key3".
func key(name string) int {
	return int(number(strings.TrimPrefix(name, "key")))
}

func number(text string) int32 {
	parsed, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return int32(parsed)
}
