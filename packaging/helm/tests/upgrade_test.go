package chart

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A cluster that has this one secret: as much of the API as Helm asks to look it up.
func clusterWith(t *testing.T, secret core.Secret) string {
	t.Helper()
	resource := meta.APIResource{Name: "secrets", SingularName: "secret", Namespaced: true, Kind: "Secret", Verbs: meta.Verbs{"get"}}
	answers := map[string]any{
		"/version": map[string]string{"major": "1", "minor": "37", "gitVersion": "v1.37.0"},
		"/api":     meta.APIVersions{TypeMeta: meta.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
		"/apis":    meta.APIGroupList{TypeMeta: meta.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []meta.APIGroup{}},
		"/api/v1": meta.APIResourceList{
			TypeMeta: meta.TypeMeta{Kind: "APIResourceList"}, GroupVersion: "v1", APIResources: []meta.APIResource{resource},
		},
		"/api/v1/namespaces/" + namespace + "/secrets/" + secret.Name: secret,
	}
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		writer.Header().Set("Content-Type", "application/json")
		answer, is := answers[request.URL.Path]
		if !is {
			writer.WriteHeader(http.StatusNotFound)
			answer = meta.Status{
				TypeMeta: meta.TypeMeta{Kind: "Status", APIVersion: "v1"},
				Status:   meta.StatusFailure, Reason: meta.StatusReasonNotFound, Code: http.StatusNotFound,
			}
		}
		if err := json.NewEncoder(writer).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// Words that an upgrade made anew would lock out every client, and nodes that are not restarted yet.
func TestAnUpgradeKeepsTheSecret(t *testing.T) {
	for _, names := range []struct{ values, password, secret string }{
		{"", "password", "cluster-secret"},
		{"auth: {passwordKey: client, clusterSecretKey: node}", "client", "node"},
	} {
		kept := core.Secret{
			TypeMeta:   meta.TypeMeta{Kind: "Secret", APIVersion: "v1"},
			ObjectMeta: meta.ObjectMeta{Name: "cache-iolite", Namespace: namespace},
			Data:       map[string][]byte{names.password: []byte("of clients"), names.secret: []byte("of nodes")},
		}
		words := []string{"template", release, "--dry-run=server", "--kube-apiserver", clusterWith(t, kept)}
		text, err := helm(t, setting(t, "CHART"), names.values, words...)
		if err != nil {
			t.Fatal(text)
		}
		data := only(t, decode(t, text).secrets).Data
		if string(data[names.password]) != "of clients" || string(data[names.secret]) != "of nodes" {
			t.Errorf("the secret is made anew: %v", data)
		}
	}
}

func TestTheFirstInstallationMakesWordsOfItsOwn(t *testing.T) {
	data := func() map[string][]byte { return only(t, render(t, "").secrets).Data }
	first, second := data(), data()
	for _, key := range []string{"password", "cluster-secret"} {
		if string(first[key]) == string(second[key]) {
			t.Errorf("%s is the same twice", key)
		}
	}
	if string(first["password"]) == string(first["cluster-secret"]) {
		t.Error("clients know the secret of the nodes")
	}
}
