package kube

import (
	"slices"
	"testing"
)

func TestMissingFields(t *testing.T) {
	some := `{"spec":{"versions":[{"name":"v0","served":true},{"name":"v1","served":true,"schema":{"openAPIV3Schema":{"properties":{
		"spec":{"properties":{"runtime":{},"replicas":{"items":{"properties":{"member":{}}}}}},"status":{"x-kubernetes-preserve-unknown-fields":true}}}}}]}}`
	missing, err := missingFields([]byte(some))
	if err != nil {
		t.Fatal(err)
	}
	for _, there := range []string{"spec.runtime", "spec.replicas.member", "status.owner.node"} {
		if slices.Contains(missing, there) {
			t.Errorf("%s is said to be missing", there)
		}
	}
	for _, not := range []string{"the status subresource", "spec.accessMode", "spec.replicas.incarnation", "spec.claim.uid"} {
		if !slices.Contains(missing, not) {
			t.Errorf("%s is not said to be missing", not)
		}
	}
	if missing, _ := missingFields([]byte(`{"spec":{"versions":[{"name":"v1","served":false}]}}`)); !slices.Equal(missing, []string{"version v1"}) {
		t.Errorf("missing %v", missing)
	}
	if _, err := missingFields([]byte("{")); err == nil {
		t.Error("half a definition was read")
	}
}
