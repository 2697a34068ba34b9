// Tests of the chart: Helm lints and renders it, each object is decoded strictly as the type that its kind is in Go, and what the
// objects say to each other is held against what the server and the operator need.
//
// CHART is the directory of the chart, HELM the program, ALERTS the rules that Prometheus is given without the chart.
package chart

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// What the release is called, and where it is.
const (
	release   = "cache"
	namespace = "shop"
)

// The objects that a chart is rendered to.
type objects struct {
	configs  []core.ConfigMap
	secrets  []core.Secret
	services []core.Service
	sets     []apps.StatefulSet
	budgets  []policy.PodDisruptionBudget
	policies []networking.NetworkPolicy
	monitors []monitoring.ServiceMonitor
	rules    []monitoring.PrometheusRule
}

func setting(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set: cargo xtask check-chart runs these tests", name)
	}
	return value
}

// Runs Helm with these values, a document of YAML.
func helm(t *testing.T, chart, values string, words ...string) (string, error) {
	t.Helper()
	// Not below the name of the test: Helm takes a path with a comma for two.
	directory, err := os.MkdirTemp("", "chart")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(directory)
	file := filepath.Join(directory, "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(setting(t, "HELM"), append(words, chart, "--namespace", namespace, "--values", file)...)
	// Nothing is asked of a cluster that the developer works with.
	command.Env = append(os.Environ(), "KUBECONFIG="+os.DevNull)
	var output, said bytes.Buffer
	command.Stdout, command.Stderr = &output, &said
	err = command.Run()
	return output.String() + said.String(), err
}

// Lints and renders the chart with these values.
func render(t *testing.T, values string) objects {
	t.Helper()
	chart := setting(t, "CHART")
	if said, err := helm(t, chart, values, "lint", "--strict"); err != nil {
		t.Fatalf("lint: %v\n%s", err, said)
	}
	text, err := helm(t, chart, values, "template", release)
	if err != nil {
		t.Fatalf("template: %v\n%s", err, text)
	}
	return decode(t, text)
}

// Decodes each document as the type of its kind; a field that the type does not have, or that is there twice, is a failure.
func decode(t *testing.T, text string) objects {
	t.Helper()
	var all objects
	for _, document := range strings.Split("\n"+text, "\n---\n") {
		var head meta.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if head.Kind == "" {
			continue
		}
		if err := all.add(head, []byte(document)); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
	}
	return all
}

func (all *objects) add(head meta.TypeMeta, document []byte) error {
	switch head.APIVersion + " " + head.Kind {
	case "v1 ConfigMap":
		return add(&all.configs, document)
	case "v1 Secret":
		return add(&all.secrets, document)
	case "v1 Service":
		return add(&all.services, document)
	case "apps/v1 StatefulSet":
		return add(&all.sets, document)
	case "policy/v1 PodDisruptionBudget":
		return add(&all.budgets, document)
	case "networking.k8s.io/v1 NetworkPolicy":
		return add(&all.policies, document)
	case "monitoring.coreos.com/v1 ServiceMonitor":
		return add(&all.monitors, document)
	case "monitoring.coreos.com/v1 PrometheusRule":
		return add(&all.rules, document)
	}
	return &unknownKind{head}
}

func add[T any](list *[]T, document []byte) error {
	var object T
	err := yaml.UnmarshalStrict(document, &object)
	*list = append(*list, object)
	return err
}

type unknownKind struct{ head meta.TypeMeta }

func (unknown *unknownKind) Error() string {
	return "no type is known for " + unknown.head.APIVersion + " " + unknown.head.Kind
}

// The one object of a list.
func only[T any](t *testing.T, list []T) T {
	t.Helper()
	if len(list) != 1 {
		t.Fatalf("%d objects of %T, one is wanted", len(list), list)
	}
	return list[0]
}

func none[T any](t *testing.T, list []T) {
	t.Helper()
	if len(list) != 0 {
		t.Errorf("%d objects of %T, none is wanted", len(list), list)
	}
}

// Whether decoding itself finds what it is for.
func TestDecodingIsStrict(t *testing.T) {
	good := "apiVersion: v1\nkind: Service\nspec:\n  ports:\n    - {name: redis, port: 6379}\n"
	var all objects
	head := meta.TypeMeta{APIVersion: "v1", Kind: "Service"}
	if err := all.add(head, []byte(good)); err != nil {
		t.Errorf("a good object: %v", err)
	}
	for what, bad := range map[string]string{
		"a field that there is not":   strings.Replace(good, "name:", "nam:", 1),
		"a field that is there twice": good + "spec: {}\n",
		"another type":                strings.Replace(good, "6379", "redis", 1),
	} {
		if all.add(head, []byte(bad)) == nil {
			t.Errorf("%s is taken", what)
		}
	}
	if all.add(meta.TypeMeta{APIVersion: "v1", Kind: "Servic"}, []byte(good)) == nil {
		t.Error("a kind that there is not is taken")
	}
}
