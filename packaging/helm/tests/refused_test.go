package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Values that the schema refuses, and what the operator is told.
var refusedBySchema = map[string]string{
	"replcas: 3":                                   "additional properties 'replcas' not allowed",
	"existingSecret: words":                        "additional properties 'existingSecret' not allowed",
	"image: {repo: iolite}":                        "at '/image': additional properties 'repo' not allowed",
	"metrics: {serviceMonitor: {enable: true}}":    "at '/metrics/serviceMonitor': additional properties 'enable' not allowed",
	"networkPolicy: {clients: [{pods: {}}]}":       "additional properties 'pods' not allowed",
	"networkPolicy: {clients: [{}]}":               "at '/networkPolicy/clients/0': minProperties",
	"resources: {limit: {memory: 1Gi}}":            "at '/resources': additional properties 'limit' not allowed",
	"replicas: 2":                                  "at '/replicas': value must be one of 1, 3, 5, 7",
	"replicas: three":                              "at '/replicas'",
	"replicas: 0":                                  "at '/replicas': value must be one of 1, 3, 5, 7",
	"metrics: {port: 70000}":                       "at '/metrics/port': maximum: got 70,000, want 65,535",
	"metrics: {port: 80}":                          "at '/metrics/port': minimum: got 80, want 1,024",
	"metrics: {auth: nobody}":                      "at '/metrics/auth': got string, want boolean",
	"metrics: {serviceMonitor: {interval: often}}": "at '/metrics/serviceMonitor/interval': 'often' does not match pattern",
	"image: {pullPolicy: Sometimes}":               "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'",
	"image: {repository: ''}":                      "at '/image/repository': minLength",
	"persistence: {size: large}":                   "at '/persistence/size': 'large' does not match pattern",
	"persistence: {accessModes: []}":               "at '/persistence/accessModes': minItems",
	"auth: {existingSecret: Not_A_Name}":           "at '/auth/existingSecret': 'Not_A_Name' does not match pattern",
	"fullnameOverride: -store":                     "at '/fullnameOverride': '-store' does not match pattern",
	"terminationGracePeriodSeconds: 0":             "at '/terminationGracePeriodSeconds': minimum",
	"config: {save: [3600, 1]}":                    "at '/config/save': got array",
	"config: {Max_Memory: 1gb}":                    "'Max_Memory' does not match pattern",
	`config: {hz: "10\nrequirepass x"}`:            "at '/config/hz'",
}

// Values that the templates refuse.
var refusedByTemplates = map[string]string{
	"config: {requirepass: word}":                            "config.requirepass: the chart sets this directive; see the value auth.existingSecret",
	"config: {http-port: 1}":                                 "config.http-port: the chart sets this directive; see the value metrics.port",
	"podDisruptionBudget: {maxUnavailable: 2}":               "without 2 of 3 nodes there is no majority",
	"replicas: 5\npodDisruptionBudget: {maxUnavailable: 3}":  "without 3 of 5 nodes there is no majority",
	"metrics: {auth: true, serviceMonitor: {enabled: true}}": "a ServiceMonitor needs metrics.existingTokenSecret",
	"metrics: {port: 6379}":                                  "each is a port of its own",
	"sentinel: {port: 9121}":                                 "each is a port of its own",
	"service: {port: 26379}":                                 "service.port: it is that of metrics or of Sentinels",
	"podLabels: {app.kubernetes.io/name: mine}":              "podLabels: the chart sets the label app.kubernetes.io/name itself",
	"commonLabels: {helm.sh/chart: mine}":                    "commonLabels: the chart sets the label helm.sh/chart itself",
}

func TestValuesThatAreWrongAreRefused(t *testing.T) {
	for _, refused := range []map[string]string{refusedBySchema, refusedByTemplates} {
		for values, told := range refused {
			t.Run(values, func(t *testing.T) { isRefused(t, values, told, "template", release) })
		}
	}
}

// Helm's linter sees the schema alone: it has templates refuse nothing.
func TestTheLinterRefusesThem(t *testing.T) {
	for values, told := range refusedBySchema {
		t.Run(values, func(t *testing.T) { isRefused(t, values, told, "lint", "--strict") })
	}
}

func isRefused(t *testing.T, values, told string, words ...string) {
	t.Helper()
	said, err := helm(t, setting(t, "CHART"), values, words...)
	if err == nil {
		t.Error("it is taken")
	}
	if !strings.Contains(said, told) {
		t.Errorf("Helm says\n%s\nwanted: %s", said, told)
	}
}

// Helm hands the values called global to every chart below another one.
func TestTheChartMayBePartOfAnother(t *testing.T) {
	parent := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(parent, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("Chart.yaml", "apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies: [{name: iolite, version: 0.x.x}]\n")
	if err := os.CopyFS(filepath.Join(parent, "charts", "iolite"), os.DirFS(setting(t, "CHART"))); err != nil {
		t.Fatal(err)
	}
	text, err := helm(t, parent, "global: {region: north}\niolite: {replicas: 5}", "template", release)
	if err != nil {
		t.Fatal(text)
	}
	if replicas := *only(t, decode(t, text).sets).Spec.Replicas; replicas != 5 {
		t.Errorf("%d nodes", replicas)
	}
	text, err = helm(t, parent, "iolite: {replcas: 5}", "template", release)
	if err == nil || !strings.Contains(text, "additional properties 'replcas' not allowed") {
		t.Errorf("a value of the part that there is not: %s", text)
	}
}
