package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A server that writes down how it was started. As `cluster status` it answers for the node that GROUP names, and that others wait
// to join.
const standIn = `#!/bin/sh
if [ "$1" = cluster ]; then
    [ "$4" = "$GROUP" ] && exit 0
    exit 1
fi
echo "$@"
`

// The words with which start.sh of these values starts the server in a pod; the files of the pod are in a directory.
func started(t *testing.T, values, pod, group string) string {
	t.Helper()
	all := render(t, values)
	container := only(t, only(t, all.sets).Spec.Template.Spec.Containers)
	if strings.Join(container.Command, " ") != "sh /etc/iolite/start.sh" {
		t.Fatalf("the container runs %v", container.Command)
	}
	directory := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range only(t, all.configs).Data {
		write(name, strings.ReplaceAll(text, "/etc/iolite", directory))
	}
	write("iolite", standIn)
	write("hostname", "#!/bin/sh\necho "+pod+"\n")
	command := exec.Command("sh", filepath.Join(directory, "start.sh"))
	command.Env = []string{"PATH=" + directory + ":" + os.Getenv("PATH"), "GROUP=" + group, "IOLITE_REQUIREPASS=word"}
	for _, name := range []string{"SERVICE", "REPLICAS"} {
		command.Env = append(command.Env, name+"="+environment(t, container, name).Value)
	}
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(output)), filepath.Join(directory, "iolite.conf")+" ")
}

func TestHowEachNodeIsStarted(t *testing.T) {
	const below = ".cache-iolite-nodes.shop.svc"
	announced := func(pod string) string { return "--replica-announce-ip " + pod + below }
	for _, row := range []struct{ what, values, pod, group, want string }{
		{"one node", "replicas: 1", "cache-iolite-0", "", announced("cache-iolite-0")},
		{"the first begins the group", "", "cache-iolite-0", "", announced("cache-iolite-0") + " --cluster-group yes"},
		{"another joins it", "", "cache-iolite-2", "", announced("cache-iolite-2") + " --join cache-iolite-0" + below},
		{
			"the first, whose volume was lost, joins", "", "cache-iolite-0", "cache-iolite-2" + below,
			announced("cache-iolite-0") + " --join cache-iolite-2" + below,
		},
		{
			"the fifth node is asked, too", "replicas: 5", "cache-iolite-0", "cache-iolite-4" + below,
			announced("cache-iolite-0") + " --join cache-iolite-4" + below,
		},
	} {
		t.Run(row.what, func(t *testing.T) {
			if got := started(t, row.values, row.pod, row.group); got != row.want {
				t.Errorf("started with\n%s\nwanted\n%s", got, row.want)
			}
		})
	}
}
