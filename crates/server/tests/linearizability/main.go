// Says of histories of a server, one a file, whether they are linearizable: whether there is an order
// of all operations, each between its call and its return, in which the model gives the same replies.
//
// A history is one JSON object a line: an operation of one client, which is a single command, a whole
// transaction, or a step of one that watches keys.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// How long a history may take before it counts as undecided.
const patience = 3 * time.Minute

// An operation as it was recorded. Call and Return are moments in one order for all clients.
type record struct {
	Client   int        `json:"client"`
	Call     int64      `json:"call"`
	Return   int64      `json:"return"`
	Kind     string     `json:"kind"`
	Commands [][]string `json:"commands"`
	Reply    string     `json:"reply"`
}

func main() {
	failed := false
	for _, path := range os.Args[1:] {
		operations, err := read(path)
		if err != nil {
			fmt.Println(path, err)
			os.Exit(2)
		}
		result := porcupine.CheckOperationsTimeout(model, operations, patience)
		fmt.Println(path, len(operations), "operations:", result)
		failed = failed || result != porcupine.Ok
	}
	if failed {
		os.Exit(1)
	}
}

func read(path string) ([]porcupine.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var operations []porcupine.Operation
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var one record
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, err
		}
		operations = append(operations, porcupine.Operation{
			ClientId: one.Client,
			Input:    one,
			Call:     one.Call,
			Output:   one.Reply,
			Return:   one.Return,
		})
	}
	return operations, lines.Err()
}
