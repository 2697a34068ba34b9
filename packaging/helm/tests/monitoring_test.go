package chart

import (
	"os"
	"reflect"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestTheMonitorFindsThePortOfMetrics(t *testing.T) {
	for _, values := range []string{"metrics: {serviceMonitor: {enabled: true}}", everything} {
		all := render(t, values)
		monitor := only(t, all.monitors)
		var found []core.Service
		for _, service := range all.services {
			if selects(t, &monitor.Spec.Selector, service.Labels) {
				found = append(found, service)
			}
		}
		service, endpoint := only(t, found), only(t, monitor.Spec.Endpoints)
		if len(portsNamed(service, endpoint.Port)) != 1 || endpoint.Path != "/metrics" {
			t.Errorf("the service %s has no port %s", service.Name, endpoint.Port)
		}
		if portsNamed(service, endpoint.Port)[0].TargetPort.StrVal != "http" {
			t.Error("it is not the management port")
		}
		if !reflect.DeepEqual(monitor.Spec.NamespaceSelector.MatchNames, []string{namespace}) {
			t.Errorf("services are looked for in %v", monitor.Spec.NamespaceSelector)
		}
		// The alerts name it.
		if job := service.Labels[monitor.Spec.JobLabel]; job != "iolite" {
			t.Errorf("the job is called %q", job)
		}
	}
}

func TestTheMonitorSaysTheWordThatTheServerWants(t *testing.T) {
	all := render(t, everything)
	monitor := only(t, all.monitors)
	if monitor.Labels["release"] != "prometheus" {
		t.Error("the operator does not find the monitor by its label")
	}
	word := only(t, monitor.Spec.Endpoints).Authorization.Credentials
	if word.Name != "scraper" || word.Key != "word" {
		t.Errorf("the scraper says %s of %s", word.Key, word.Name)
	}
	pod := only(t, all.sets).Spec.Template.Spec
	for _, volume := range pod.Volumes {
		if volume.Secret != nil && volume.Secret.SecretName == word.Name {
			return
		}
	}
	t.Error("the server has not the secret of the scraper")
}

func TestTheRulesAreThoseOfTheRunbook(t *testing.T) {
	text, err := os.ReadFile(setting(t, "ALERTS"))
	if err != nil {
		t.Fatal(err)
	}
	var published monitoring.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(text, &published); err != nil {
		t.Fatal(err)
	}
	plain := only(t, render(t, "metrics: {prometheusRule: {enabled: true}}").rules)
	if len(plain.Spec.Groups) == 0 || !reflect.DeepEqual(plain.Spec, published) {
		t.Error("the rules are not those that are published")
	}
	rule := only(t, render(t, everything).rules)
	last := len(rule.Spec.Groups) - 1
	if !reflect.DeepEqual(rule.Spec.Groups[:last], published.Groups) {
		t.Error("with rules of the operator's own, those that are published are others")
	}
	if mine := rule.Spec.Groups[last]; only(t, mine.Rules).Alert != "Mine" || mine.Name == published.Groups[0].Name {
		t.Errorf("the operator's own rules are %v", mine)
	}
	if rule.Labels["release"] != "prometheus" {
		t.Error("the operator does not find the rules by their label")
	}
}
