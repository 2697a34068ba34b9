package chart

import (
	"reflect"
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// The policy of one peer: which ports are open to it.
type opening struct {
	peer  networking.NetworkPolicyPeer
	ports []string
}

func openings(t *testing.T, all objects) []opening {
	t.Helper()
	allowed := only(t, all.policies)
	pod := only(t, all.sets).Spec.Template
	if !selects(t, &allowed.Spec.PodSelector, pod.Labels) {
		t.Fatal("the policy is about no pods")
	}
	if !reflect.DeepEqual(allowed.Spec.PolicyTypes, []networking.PolicyType{networking.PolicyTypeIngress}) {
		t.Errorf("the policy is about %v", allowed.Spec.PolicyTypes)
	}
	var open []opening
	for _, rule := range allowed.Spec.Ingress {
		// Either would be everybody, or every port.
		if len(rule.From) == 0 || len(rule.Ports) == 0 {
			t.Errorf("a rule without peers or ports: %v", rule)
		}
		var ports []string
		for _, port := range rule.Ports {
			if *port.Protocol != core.ProtocolTCP || !hasPort(only(t, pod.Spec.Containers), *port.Port) {
				t.Errorf("no container has the port %s", port.Port.String())
			}
			ports = append(ports, port.Port.String())
		}
		for _, peer := range rule.From {
			open = append(open, opening{peer, ports})
		}
	}
	return open
}

func pods(selector map[string]string) networking.NetworkPolicyPeer {
	return networking.NetworkPolicyPeer{PodSelector: &meta.LabelSelector{MatchLabels: selector}}
}

func namespaces(selector map[string]string) networking.NetworkPolicyPeer {
	return networking.NetworkPolicyPeer{NamespaceSelector: &meta.LabelSelector{MatchLabels: selector}}
}

func TestThePolicyLetsClientsNodesAndTheScraperInAndNobodyElse(t *testing.T) {
	node := map[string]string{"app.kubernetes.io/name": "iolite", "app.kubernetes.io/instance": release}
	block := networking.NetworkPolicyPeer{IPBlock: &networking.IPBlock{CIDR: "10.1.0.0/16", Except: []string{"10.1.2.0/24"}}}
	monitoringSpace := map[string]string{"kubernetes.io/metadata.name": "monitoring"}
	for values, want := range map[string][]opening{
		"networkPolicy: {enabled: true}": {
			{pods(nil), []string{"redis", "sentinel"}},
			{pods(node), []string{"redis", "links"}},
			{namespaces(nil), []string{"http"}},
		},
		"replicas: 1\nnetworkPolicy: {enabled: true}": {
			{pods(nil), []string{"redis"}},
			{namespaces(nil), []string{"http"}},
		},
		"networkPolicy: {enabled: true, clients: [], scrapers: []}": {
			{pods(node), []string{"redis", "links"}},
		},
		"replicas: 1\nnetworkPolicy: {enabled: true, clients: [], scrapers: []}": nil,
		everything: {
			{pods(map[string]string{"app": "shop"}), []string{"redis", "sentinel"}},
			{block, []string{"redis", "sentinel"}},
			{pods(node), []string{"redis", "links"}},
			{namespaces(monitoringSpace), []string{"http"}},
			{pods(map[string]string{"app": "backup"}), []string{"redis"}},
		},
	} {
		all := render(t, values)
		if open := openings(t, all); !reflect.DeepEqual(open, want) {
			t.Errorf("%s\nopen is %v,\nwanted %v", values, open, want)
		}
		// They are the pods themselves.
		if !labels.SelectorFromSet(node).Matches(labels.Set(only(t, all.sets).Spec.Template.Labels)) {
			t.Error("a node is no pod of the set")
		}
	}
}
