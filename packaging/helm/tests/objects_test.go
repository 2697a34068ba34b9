package chart

import (
	"reflect"
	"strconv"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Every value that is off by default, and every list that is empty.
const everything = `
replicas: 5
image: {registry: registry.example, repository: team/iolite, tag: "1.2.3", pullPolicy: Always}
imagePullSecrets: [{name: pull}]
nameOverride: store
commonLabels: {team: shop}
podLabels: {tier: data}
podAnnotations: {note: "yes"}
auth: {existingSecret: words, passwordKey: client-password, clusterSecretKey: node-secret}
config: {appendonly: true, maxmemory: 4294967296, save: "", hz: 10, durability: quorum}
persistence: {size: 20Gi, storageClass: fast, accessModes: [ReadWriteOncePod]}
service: {type: LoadBalancer, port: 6380, annotations: {internal: "true"}}
sentinel: {port: 26380}
metrics:
  port: 9200
  auth: true
  existingTokenSecret: scraper
  tokenKey: word
  serviceMonitor:
    enabled: true
    extraLabels: {release: prometheus}
    interval: 15s
    scrapeTimeout: 10s
    relabelings: [{sourceLabels: [__meta_kubernetes_pod_name], targetLabel: pod}]
    metricRelabelings: [{action: drop, sourceLabels: [__name__], regex: redis_commands_.*}]
  prometheusRule:
    enabled: true
    extraLabels: {release: prometheus}
    rules: [{alert: Mine, expr: redis_up == 0, for: 1m, labels: {severity: info}}]
networkPolicy:
  enabled: true
  clients: [{podSelector: {matchLabels: {app: shop}}}, {ipBlock: {cidr: 10.1.0.0/16, except: [10.1.2.0/24]}}]
  scrapers: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
  extraIngress: [{from: [{podSelector: {matchLabels: {app: backup}}}], ports: [{protocol: TCP, port: redis}]}]
podDisruptionBudget: {enabled: true, maxUnavailable: 2, unhealthyPodEvictionPolicy: AlwaysAllow}
podSecurityContext: {seccompProfile: {type: RuntimeDefault}}
serviceAccount: {name: iolite}
resources: {requests: {cpu: 2, memory: 4Gi}, limits: {memory: 4Gi}}
nodeSelector: {disk: ssd}
tolerations: [{key: data, operator: Exists, effect: NoSchedule}]
affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone}]}}
priorityClassName: high
topologyKey: topology.kubernetes.io/zone
terminationGracePeriodSeconds: 300
`

// Values with which the chart is rendered; what holds for all of them is asked of each.
var valueSets = map[string]string{
	"default":         "",
	"one node":        "replicas: 1",
	"five nodes":      "replicas: 5",
	"existing secret": "auth: {existingSecret: words}",
	"everything":      everything,
	"one node with everything": strings.NewReplacer("replicas: 5", "replicas: 1", "durability: quorum", "durability: os").
		Replace(everything),
}

func TestEveryValueSet(t *testing.T) {
	for name, values := range valueSets {
		t.Run(name, func(t *testing.T) {
			all := render(t, values)
			set := only(t, all.sets)
			pod := set.Spec.Template
			container := only(t, pod.Spec.Containers)
			if !selects(t, set.Spec.Selector, pod.Labels) {
				t.Errorf("the set does not select its pods: %v", pod.Labels)
			}
			if set.Spec.ServiceName != headless(t, all).Name {
				t.Errorf("pods get no name from the service %s", set.Spec.ServiceName)
			}
			for _, service := range all.services {
				checkService(t, service, pod.Labels, container)
			}
			checkSecret(t, all, container)
			checkConfig(t, all, container, int(*set.Spec.Replicas))
			checkVolumes(t, all, set)
			checkNamespaces(t, all)
		})
	}
}

func TestWhatIsOffByDefaultIsOff(t *testing.T) {
	all := render(t, "")
	none(t, all.policies)
	none(t, all.monitors)
	none(t, all.rules)
	pod := only(t, all.sets).Spec.Template
	if pod.Annotations["prometheus.io/scrape"] != "true" || pod.Annotations["prometheus.io/port"] != "9121" {
		t.Errorf("a Prometheus without operator finds nothing: %v", pod.Annotations)
	}
}

// Two scrapers of one pod would show everything twice.
func TestAMonitorTakesThePlaceOfAnnotations(t *testing.T) {
	pod := only(t, render(t, "metrics: {serviceMonitor: {enabled: true}}").sets).Spec.Template
	if _, is := pod.Annotations["prometheus.io/scrape"]; is {
		t.Error("the pods are scraped by their annotations, too")
	}
}

func checkService(t *testing.T, service core.Service, pod map[string]string, container core.Container) {
	t.Helper()
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod)) {
		t.Errorf("the service %s selects no pods", service.Name)
	}
	for _, port := range service.Spec.Ports {
		target := port.TargetPort
		if target == (intstr.IntOrString{}) {
			target = intstr.FromInt32(port.Port)
		}
		if !hasPort(container, target) {
			t.Errorf("port %s of the service %s leads to %s, which no container has", port.Name, service.Name, target.String())
		}
	}
}

func checkSecret(t *testing.T, all objects, container core.Container) {
	t.Helper()
	for variable, other := range map[string]string{
		"IOLITE_REQUIREPASS": "", "IOLITE_MASTERAUTH": "IOLITE_REQUIREPASS", "IOLITE_CLUSTER_SECRET": "",
	} {
		reference := environment(t, container, variable).ValueFrom.SecretKeyRef
		if other != "" && !reflect.DeepEqual(reference, environment(t, container, other).ValueFrom.SecretKeyRef) {
			t.Errorf("%s is not %s", variable, other)
		}
		if len(all.secrets) == 0 {
			continue
		}
		secret := only(t, all.secrets)
		if secret.Name != reference.Name || len(secret.Data[reference.Key]) < 40 {
			t.Errorf("%s is not in the secret %s", variable, secret.Name)
		}
	}
}

// What the configuration says, the container and the probes say, too.
func checkConfig(t *testing.T, all objects, container core.Container, replicas int) {
	t.Helper()
	lines := directives(only(t, all.configs))
	if got := environment(t, container, "REPLICAS").Value; got != strconv.Itoa(replicas) {
		t.Errorf("start.sh is told of %s nodes, there are %d", got, replicas)
	}
	ports := map[string]int32{}
	for _, port := range container.Ports {
		ports[port.Name] = port.ContainerPort
	}
	if lines["http-port"] != strconv.Itoa(int(ports["http"])) || lines["http-bind"] != "*" {
		t.Errorf("the port http is %d, http-port %s", ports["http"], lines["http-port"])
	}
	if sentinel, is := ports["sentinel"]; is != (replicas > 1) || is && lines["sentinel-port"] != strconv.Itoa(int(sentinel)) {
		t.Errorf("the port sentinel is %d, sentinel-port %s", sentinel, lines["sentinel-port"])
	}
	probes := []*core.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe}
	for index, path := range []string{"/healthz", "/healthz", "/readyz"} {
		if get := probes[index].HTTPGet; get.Path != path || get.Port.StrVal != "http" {
			t.Errorf("a probe asks %s at %s", get.Path, get.Port.String())
		}
	}
}

func checkVolumes(t *testing.T, all objects, set apps.StatefulSet) {
	t.Helper()
	volumes := map[string]bool{}
	for _, volume := range set.Spec.Template.Spec.Volumes {
		volumes[volume.Name] = true
		if volume.ConfigMap != nil && volume.ConfigMap.Name != only(t, all.configs).Name {
			t.Errorf("there is no ConfigMap %s", volume.ConfigMap.Name)
		}
	}
	volumes[only(t, set.Spec.VolumeClaimTemplates).Name] = true
	for _, mount := range only(t, set.Spec.Template.Spec.Containers).VolumeMounts {
		if !volumes[mount.Name] {
			t.Errorf("there is no volume %s for %s", mount.Name, mount.MountPath)
		}
	}
}

// Objects without a namespace are where the release is.
func checkNamespaces(t *testing.T, all objects) {
	t.Helper()
	service := environment(t, only(t, only(t, all.sets).Spec.Template.Spec.Containers), "SERVICE").Value
	if want := headless(t, all).Name + "." + namespace + ".svc"; service != want {
		t.Errorf("nodes look for each other below %s, they are below %s", service, want)
	}
}

func TestOneNodeHasNothingOfAGroup(t *testing.T) {
	all := render(t, "replicas: 1\nnetworkPolicy: {enabled: true}")
	none(t, all.budgets)
	for _, service := range all.services {
		for _, port := range service.Spec.Ports {
			if port.Name == "sentinel" {
				t.Error("one node has a port for Sentinels")
			}
		}
	}
}

func TestTheBudgetCountsThePodsAndLeavesAMajority(t *testing.T) {
	for replicas, lost := range map[int]int{3: 1, 5: 2, 7: 3} {
		all := render(t, "replicas: "+strconv.Itoa(replicas)+"\npodDisruptionBudget: {maxUnavailable: "+strconv.Itoa(lost)+"}")
		budget := only(t, all.budgets)
		if !selects(t, budget.Spec.Selector, only(t, all.sets).Spec.Template.Labels) {
			t.Error("the budget counts no pods")
		}
		if budget.Spec.MaxUnavailable.IntValue() != lost {
			t.Errorf("%s of %d nodes may be away", budget.Spec.MaxUnavailable.String(), replicas)
		}
	}
	none(t, render(t, "podDisruptionBudget: {enabled: false}").budgets)
}

func TestASecretThatIsThereIsUsedAndNoneMade(t *testing.T) {
	all := render(t, "auth: {existingSecret: words, passwordKey: client, clusterSecretKey: node}")
	none(t, all.secrets)
	container := only(t, only(t, all.sets).Spec.Template.Spec.Containers)
	for variable, key := range map[string]string{
		"IOLITE_REQUIREPASS": "client", "IOLITE_MASTERAUTH": "client", "IOLITE_CLUSTER_SECRET": "node",
	} {
		reference := environment(t, container, variable).ValueFrom.SecretKeyRef
		if reference.Name != "words" || reference.Key != key {
			t.Errorf("%s is %s of %s", variable, reference.Key, reference.Name)
		}
	}
}

func TestValuesReachTheConfigurationAsTheyAreWritten(t *testing.T) {
	lines := directives(only(t, render(t, everything).configs))
	for directive, value := range map[string]string{
		"appendonly": "yes", "maxmemory": "4294967296", "save": `""`, "hz": "10", "durability": "quorum",
		"maxmemory-policy": "noeviction", "http-metrics-auth": "yes", "http-metrics-token-file": "/etc/iolite-token/word",
	} {
		if lines[directive] != value {
			t.Errorf("%s %s, written is %s", directive, lines[directive], value)
		}
	}
	if auth := directives(only(t, render(t, "").configs))["http-metrics-auth"]; auth != "no" {
		t.Errorf("http-metrics-auth %s by default", auth)
	}
}

// A change of the configuration starts the nodes anew, as nothing else would.
func TestAChangeOfTheConfigurationChangesThePods(t *testing.T) {
	sum := func(values string) string {
		return only(t, render(t, values).sets).Spec.Template.Annotations["checksum/config"]
	}
	if sum("") != sum("") || sum("") == sum("config: {hz: 11}") {
		t.Error("the sum of the configuration is not that of its text")
	}
}

func TestWhatIsSaidOfPodsReachesThem(t *testing.T) {
	set := only(t, render(t, everything).sets)
	pod := set.Spec.Template
	container := only(t, pod.Spec.Containers)
	claim := only(t, set.Spec.VolumeClaimTemplates).Spec
	for what, is := range map[string]bool{
		"image":           container.Image == "registry.example/team/iolite:1.2.3" && container.ImagePullPolicy == core.PullAlways,
		"pull secret":     only(t, pod.Spec.ImagePullSecrets).Name == "pull",
		"labels":          pod.Labels["team"] == "shop" && pod.Labels["tier"] == "data" && set.Labels["team"] == "shop",
		"annotations":     pod.Annotations["note"] == "yes",
		"account":         pod.Spec.ServiceAccountName == "iolite" && !*pod.Spec.AutomountServiceAccountToken,
		"service links":   !*pod.Spec.EnableServiceLinks,
		"user":            *pod.Spec.SecurityContext.RunAsUser == 999 && *pod.Spec.SecurityContext.RunAsNonRoot,
		"system calls":    pod.Spec.SecurityContext.SeccompProfile.Type == core.SeccompProfileTypeRuntimeDefault,
		"root":            *container.SecurityContext.ReadOnlyRootFilesystem && !*container.SecurityContext.AllowPrivilegeEscalation,
		"resources":       container.Resources.Limits.Memory().String() == "4Gi" && container.Resources.Requests.Cpu().String() == "2",
		"node":            pod.Spec.NodeSelector["disk"] == "ssd" && only(t, pod.Spec.Tolerations).Key == "data",
		"affinity":        pod.Spec.Affinity.PodAntiAffinity != nil,
		"priority":        pod.Spec.PriorityClassName == "high",
		"spread":          only(t, pod.Spec.TopologySpreadConstraints).TopologyKey == "topology.kubernetes.io/zone",
		"time to stop":    *pod.Spec.TerminationGracePeriodSeconds == 300,
		"volume":          *claim.StorageClassName == "fast" && claim.Resources.Requests.Storage().String() == "20Gi",
		"access to it":    only(t, claim.AccessModes) == core.ReadWriteOncePod,
		"name of the set": set.Name == release+"-store",
	} {
		if !is {
			t.Errorf("%s: it is not as the values say", what)
		}
	}
}

func headless(t *testing.T, all objects) core.Service {
	t.Helper()
	var found []core.Service
	for _, service := range all.services {
		if service.Spec.ClusterIP == core.ClusterIPNone && service.Spec.PublishNotReadyAddresses {
			found = append(found, service)
		}
	}
	return only(t, found)
}

func selects(t *testing.T, selector *meta.LabelSelector, of map[string]string) bool {
	t.Helper()
	compiled, err := meta.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return !compiled.Empty() && compiled.Matches(labels.Set(of))
}

func hasPort(container core.Container, wanted intstr.IntOrString) bool {
	for _, port := range container.Ports {
		if wanted.StrVal == port.Name && wanted.Type == intstr.String || wanted.IntVal == port.ContainerPort {
			return true
		}
	}
	return false
}

func portsNamed(service core.Service, name string) []core.ServicePort {
	var found []core.ServicePort
	for _, port := range service.Spec.Ports {
		if port.Name == name {
			found = append(found, port)
		}
	}
	return found
}

func environment(t *testing.T, container core.Container, name string) core.EnvVar {
	t.Helper()
	var found []core.EnvVar
	for _, variable := range container.Env {
		if variable.Name == name {
			found = append(found, variable)
		}
	}
	return only(t, found)
}

func directives(config core.ConfigMap) map[string]string {
	lines := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(config.Data["iolite.conf"]), "\n") {
		directive, value, _ := strings.Cut(line, " ")
		lines[directive] = value
	}
	return lines
}
