package registrar

import (
	"strings"
	"testing"

	"go.uber.org/zap"
)

// TestRefusedConfigurations: one line, with the flag.
func TestRefusedConfigurations(t *testing.T) {
	for want, c := range map[string]Config{
		"--csi-socket is required":                              {Folder: "/f"},
		`--csi-socket: "a" is not an absolute path`:             {Folder: "/f", Sockets: []string{"a"}},
		`--kubelet-socket: "b" is not an absolute path`:         {Folder: "/f", Sockets: []string{"/a"}, KubeletSockets: []string{"b"}},
		"--kubelet-socket: given 1 times, --csi-socket 2 times": {Folder: "/f", Sockets: []string{"/a", "/b"}, KubeletSockets: []string{"/c"}},
		`--registration-dir: "" is not an absolute path`:        {Sockets: []string{"/a"}},
	} {
		if err := Run(t.Context(), c, zap.NewNop(), nil); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	c := Config{Folder: "/f", Sockets: []string{"/a", "/b"}, KubeletSockets: []string{"/c", "/d"}}
	if d, err := c.drivers(); err != nil || len(d) != 2 || d[1].Socket != "/b" || d[1].KubeletSocket != "/d" {
		t.Errorf("drivers %v, error %v", d, err)
	}
}
