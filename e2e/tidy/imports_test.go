package tidy

import (
	"path"
	"strings"
	"testing"
)

// layers says what the packages below a folder may import of this module,
// beside what lies in the same folder. The first rule that matches counts.
// Tests may import more: they are checked only for third parties.
var layers = []struct {
	pkg string
	may []string
}{
	{".", []string{"roles"}},
	{"roles/boot", nil},
	{"roles/worker", []string{"roles/boot", "fusefs", "raftlog"}},
	{"roles/mountowner", []string{"roles/boot", "roles/worker", "csi", "fusefs", "raftlog/transport"}},
	{"roles", []string{"roles", "csi", "kube", "fusefs", "raftlog"}},
	{"csi", nil},
	{"kube/kubetest", []string{"kube", "e2e/cluster/programs"}}, // starts a real API server for tests
	{"kube", nil},
	{"manifests", nil},
	{"raftlog/disk", nil},
	{"raftlog/transport", []string{"raftlog"}},
	{"raftlog", []string{"raftlog"}},
	{"fusefs/fsop", nil},
	{"fusefs/tree", []string{"fusefs/fsop", "raftlog/disk"}},
	{"fusefs/coord", []string{"fusefs/fsop", "fusefs/tree", "fusefs/wire"}},
	{"fusefs/wire", []string{"raftlog/transport/framed"}}, // replicas and clients share a port and its frames
	{"fusefs/client", []string{"fusefs/fsop", "fusefs/wire"}},
	{"fusefs/kernel", []string{"fusefs/fsop"}},
	{"e2e", []string{"roles", "csi", "kube", "fusefs", "raftlog", "manifests", "e2e"}},
}

// thirdParties says which packages may import a dependency, and whose tests may
// besides.
var thirdParties = []struct {
	dep   string
	may   []string
	tests []string
}{
	{"bazil.org/fuse", []string{"fusefs/kernel"}, nil},
	{"go.etcd.io/raft", []string{"raftlog"}, []string{"roles/ctl"}},     // it makes journals to read
	{"k8s.io", []string{"kube", "e2e/cluster", "csi/registrar"}, nil},   // csi/registrar: the kubelet's registration protocol only
	{"sigs.k8s.io", []string{"kube", "e2e/cluster"}, []string{"roles"}}, // the resource definition is YAML
	{"github.com/container-storage-interface/spec", []string{"csi"}, []string{"roles", "e2e/hostile"}},
	{"google.golang.org/grpc", []string{"csi", "roles"}, []string{"e2e/hostile"}},
	{"github.com/kubernetes-csi/csi-test", []string{"csi/sanitytest"}, []string{"csi", "roles"}},
	{"github.com/onsi", []string{"csi/sanitytest"}, nil},
	{"github.com/cockroachdb/pebble", []string{"fusefs/tree", "raftlog"}, nil},
	{"github.com/prometheus", []string{"roles"}, nil},
}

func TestImportDirection(t *testing.T) {
	for _, s := range sources(t) {
		for _, imp := range s.imports() {
			if own, ok := strings.CutPrefix(imp, module+"/"); ok && !s.test {
				if !mayImport(s.pkg, own) {
					t.Errorf("%s imports %s", s.path, own)
				}
				continue
			}
			for _, rule := range thirdParties {
				allowed := withinAny(s.pkg, rule.may) || s.test && withinAny(s.pkg, rule.tests)
				if within(imp, rule.dep) && !allowed {
					t.Errorf("%s imports %s, which belongs to %v", s.path, imp, rule.may)
				}
			}
		}
	}
}

func mayImport(pkg, imported string) bool {
	for _, l := range layers {
		if l.pkg == pkg || l.pkg != "." && within(pkg, l.pkg) {
			return withinAny(imported, l.may) || within(imported, l.pkg) && l.pkg != "."
		}
	}
	return false
}

// TestCommandLineLibrary keeps the command line's library in command.go of a
// role, in roles/boot and in the root.
func TestCommandLineLibrary(t *testing.T) {
	for _, s := range sources(t) {
		allowed := s.pkg == "." || s.pkg == "roles" || s.pkg == "roles/boot" || path.Base(s.path) == "command.go"
		for _, imp := range s.imports() {
			if within(imp, "github.com/urfave/cli") && !allowed && !s.test {
				t.Errorf("%s imports %s", s.path, imp)
			}
		}
	}
}

func TestMayImport(t *testing.T) {
	cases := []struct {
		pkg, imported string
		want          bool
	}{
		{".", "roles", true},
		{".", "fusefs/kernel", false},
		{"raftlog/wal", "raftlog/disk", true},
		{"raftlog/disk", "raftlog", false},
		{"raftlog", "fusefs/fsop", false},
		{"fusefs/tree", "raftlog/disk", true},
		{"fusefs/tree", "raftlog", false},
		{"fusefs/coord", "raftlog/disk", false},
		{"fusefs/kernel", "fusefs/client", false},
		{"roles/dev", "roles/worker", true},
		{"unheard/of", "roles", false},
	}
	for _, c := range cases {
		if got := mayImport(c.pkg, c.imported); got != c.want {
			t.Errorf("%s imports %s: %v", c.pkg, c.imported, got)
		}
	}
}
