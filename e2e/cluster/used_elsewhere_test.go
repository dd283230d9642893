package cluster

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// usedElsewhere are rights that the scenarios need not use, and the test that has the account use each, on a real API server and
// with exactly the rights of the manifests, and finds it in the server's audit log.
var usedElsewhere = map[string]struct{ dir, test string }{
	"tak-replicated-local get /persistentvolumeclaims":                               {"roles/local", "TestProvisionerRights"},
	"tak-replicated-local update /persistentvolumeclaims":                            {"roles/local", "TestProvisionerRights"},
	"tak-replicated-local patch /events":                                             {"roles/local", "TestProvisionerRights"},
	"tak-replicated-local delete storage.k8s.io/csistoragecapacities in kube-system": {"roles/local", "TestProvisionerRights"},
	"tak-replicated-manager patch /events":                                           {"roles/manager", "TestRights"},
	"tak-replicated-manager update /secrets in tak-replicated-trust":                 {"roles/manager", "TestRights"},
	"tak-replicated-manager update /secrets in kube-system":                          {"roles/manager", "TestPodRuntimeRights"},
	"tak-replicated-node create /events":                                             {"roles/replicahost", "TestHost"},
	"tak-replicated-node patch /events":                                              {"roles/replicahost", "TestHost"},
	"tak-replicated-per-node get /pods":                                              {"roles/pernode", "TestRole"},
	"tak-replicated-per-node patch /events":                                          {"roles/pernode", "TestRole"},
}

// TestUsedElsewhere holds usedElsewhere to those tests: each right is among what its test finds in the audit log.
func TestUsedElsewhere(t *testing.T) {
	uses := regexp.MustCompile(`\.Uses\(t, "([^"]+)"((?:, "[^"]+")+)\)`)
	found := map[string]string{} // folder of each right's test
	for _, used := range usedElsewhere {
		files, err := filepath.Glob(filepath.Join("../..", used.dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		there := false
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			there = there || strings.Contains(string(b), "\nfunc "+used.test+"(t *testing.T)")
			for _, m := range uses.FindAllStringSubmatch(string(b), -1) {
				for quoted := range strings.SplitSeq(m[2][2:], ", ") {
					right, err := strconv.Unquote(quoted)
					if err != nil {
						t.Fatal(err)
					}
					found[m[1]+" "+right] = used.dir
				}
			}
		}
		if !there {
			t.Errorf("there is no %s in %s", used.test, used.dir)
		}
	}
	for right, used := range usedElsewhere {
		if found[right] != used.dir {
			t.Errorf("no test in %s looks for %q in the audit log", used.dir, right)
		}
	}
}
