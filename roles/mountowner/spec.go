package mountowner

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/worker"
)

// Spec says what to mount and where. Its JSON form is what clients of the API
// send, and what the keeper keeps for the next serving process.
type Spec struct {
	Mountpoint string   `json:"mountpoint"` // absolute path of a directory
	Volume     string   `json:"volume"`
	Name       string   `json:"name"`    // who mounts, for people
	Members    []string `json:"members"` // ID=REPLICA@HOST:PORT[/SERVERNAME]
	Trust      string   `json:"trust"`   // folder with ca.crt, client.crt, client.key and token
	// QuorumWaitMs is how long an operation waits for a quorum before it
	// answers EIO, in milliseconds; 0 waits for ever.
	QuorumWaitMs int64 `json:"quorumWaitMs"`
	ReadOnly     bool  `json:"readOnly"`
	// Near is the id of the member on this node, from which contents are read; 0:
	// there is none.
	Near uint64 `json:"near,omitempty"`
	// Owner owns the volume while it is mounted; empty: many may have it mounted.
	Owner string `json:"owner,omitempty"`
}

// specBytesMost bounds a Spec's JSON.
const specBytesMost = 64 << 10

// parseSpec reads a Spec and checks it.
func parseSpec(b []byte) (Spec, error) {
	var s Spec
	if len(b) > specBytesMost {
		return s, fmt.Errorf("mount request of more than %d bytes", specBytesMost)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("mount request: %w", err)
	}
	_, err := s.members()
	if err == nil {
		err = s.validate()
	}
	return s, err
}

func (s *Spec) validate() error {
	switch {
	case !filepath.IsAbs(s.Mountpoint) || filepath.Clean(s.Mountpoint) != s.Mountpoint || s.Mountpoint == "/":
		return boot.Usagef("mountpoint %q is not a clean absolute path", s.Mountpoint)
	case strings.ContainsRune(s.Mountpoint, 0):
		return boot.Usagef("mountpoint %q has a zero byte", s.Mountpoint)
	case s.Volume == "":
		return boot.Usagef("no volume is given")
	case s.Trust == "":
		return boot.Usagef("no trust folder is given")
	case s.Name == "" || len(s.Name) > 255:
		return boot.Usagef("the name of who mounts has %d bytes, needs 1 to 255", len(s.Name))
	case len(s.Owner) > 255:
		return boot.Usagef("the owner's name has %d bytes, 255 are allowed", len(s.Owner))
	case s.QuorumWaitMs < 0:
		return boot.Usagef("quorum wait of %d ms", s.QuorumWaitMs)
	}
	return nil
}

func (s *Spec) quorumWait() time.Duration { return time.Duration(s.QuorumWaitMs) * time.Millisecond }

func (s *Spec) members() ([]worker.Member, error) {
	if len(s.Members) < 1 || len(s.Members) > 4 {
		return nil, boot.Usagef("%d members, a volume has 1 to 4", len(s.Members))
	}
	var members []worker.Member
	for _, text := range s.Members {
		m, err := worker.ParseMember(text)
		if err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	return members, nil
}

// same reports whether another request asks for the same mount. Near is only a
// hint: a replica may have moved.
func (s *Spec) same(o *Spec) bool {
	return s.Mountpoint == o.Mountpoint && s.Volume == o.Volume && s.Name == o.Name && s.Trust == o.Trust &&
		s.QuorumWaitMs == o.QuorumWaitMs && s.ReadOnly == o.ReadOnly && s.Owner == o.Owner && slices.Equal(s.Members, o.Members)
}
