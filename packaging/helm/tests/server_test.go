package chart

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The configuration that the chart makes, given to a server: SERVER_BIN. Without one there is nothing to try.
func TestTheServerTakesTheConfiguration(t *testing.T) {
	server := os.Getenv("SERVER_BIN")
	if server == "" {
		t.Skip("SERVER_BIN is not set")
	}
	for name, values := range valueSets {
		t.Run(name, func(t *testing.T) {
			config := only(t, render(t, values).configs)
			management := serve(t, server, config.Data["iolite.conf"], directives(config))
			if got := status(t, management+"/readyz", ""); got != http.StatusOK {
				t.Errorf("readyz: %d", got)
			}
			without := http.StatusOK
			if directives(config)["http-metrics-auth"] == "yes" {
				without = http.StatusUnauthorized
			}
			if got := status(t, management+"/metrics", ""); got != without {
				t.Errorf("metrics without a word: %d", got)
			}
			if got := status(t, management+"/metrics", "word"); got != http.StatusOK {
				t.Errorf("metrics with the word: %d", got)
			}
		})
	}
}

// Starts a server with a configuration whose paths and ports are those of this machine; the address of its management port.
func serve(t *testing.T, server, config string, lines map[string]string) string {
	t.Helper()
	directory := t.TempDir()
	token := filepath.Join(directory, "token")
	if err := os.WriteFile(token, []byte("word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	management := freePort(t)
	config = strings.Replace(config, "dir /data\n", "dir "+directory+"\n", 1)
	// What stands later counts.
	config += fmt.Sprintf("port %s\nhttp-port %s\n", freePort(t), management)
	if lines["http-metrics-token-file"] != "" {
		config += "http-metrics-token-file " + token + "\n"
	}
	if lines["sentinel-port"] != "" {
		config += fmt.Sprintf("sentinel-port %s\nrepl-port %s\ncluster-group yes\n", freePort(t), freePort(t))
	}
	file := filepath.Join(directory, "iolite.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(server, file, "--replica-announce-ip", "127.0.0.1")
	command.Env = append(os.Environ(), "IOLITE_REQUIREPASS=a", "IOLITE_MASTERAUTH=a", "IOLITE_CLUSTER_SECRET=b")
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			_ = command.Process.Kill()
		}
	})
	address := "http://127.0.0.1:" + management
	for range 600 {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the server ended: %v\n%s", err, said.String())
		case <-time.After(100 * time.Millisecond):
		}
		if status(t, address+"/readyz", "") == http.StatusOK {
			return address
		}
	}
	t.Fatal("the server is not ready after a minute")
	return ""
}

// What a page is answered with; 0 where nobody answers.
func status(t *testing.T, page, word string) int {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, page, nil)
	if err != nil {
		t.Fatal(err)
	}
	if word != "" {
		request.Header.Set("Authorization", "Bearer "+word)
	}
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Do(request)
	if err != nil {
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(port)
}
