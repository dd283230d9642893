package manager

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
)

// secretFiles is a Secret's content as a trust directory. Writes change a copy.
type secretFiles map[string][]byte

func (f secretFiles) Read(name string) ([]byte, error) {
	b, ok := f[name]
	if !ok || len(b) == 0 {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return b, nil
}

func (f secretFiles) Write(name string, data []byte) error {
	f[name] = bytes.Clone(data)
	return nil
}

// holding is one Secret and who is in it.
type holding struct {
	secret  string
	index   int32 // 0: of the whole volume
	holders []pki.Holder
}

// holdings lists the Secrets of a volume.
func holdings(v *api.ReplicatedVolume, namespace, domain string) []holding {
	var all []holding
	for _, r := range v.Spec.Replicas {
		name := api.ReplicaName(v.Name, r.Index)
		all = append(all, holding{secret: name, index: r.Index, holders: []pki.Holder{
			{Role: pki.RoleServer, Name: name, Hosts: []string{api.ServiceDNS(v.Name, r.Index, namespace, domain)}},
			{Role: pki.RolePeer, Name: name},
		}})
	}
	return append(all,
		holding{secret: api.ClientSecret(v.Name), holders: []pki.Holder{{Role: pki.RoleClient, Name: "mount-owner", Token: true}}},
		holding{secret: api.OperatorSecret(v.Name), holders: []pki.Holder{{Role: pki.RoleOperator, Name: "manager", Token: true}}},
	)
}

// newAuthority makes a volume's authority, as its Secret's content.
func newAuthority(volume string, now time.Time) (map[string][]byte, error) {
	files := secretFiles{}
	_, err := pki.OpenDir(files, func() time.Time { return now }).EnsureCA(volume)
	return files, err
}

// renewed returns the content that a Secret has to have; false when what it
// has will do. Only a part of what there is may be renewed.
func renewed(have map[string][]byte, authority map[string][]byte, h holding, now time.Time) (map[string][]byte, bool, error) {
	clock := func() time.Time { return now }
	ca, err := pki.OpenDir(secretFiles(authority), clock).CA()
	if err != nil {
		return nil, false, fmt.Errorf("open the authority: %w", err)
	}
	files := secretFiles(maps.Clone(have))
	if files == nil {
		files = secretFiles{}
	}
	wrote := false
	for _, holder := range h.holders {
		w, err := pki.OpenDir(files, clock).Renew(ca, holder)
		if err != nil {
			return nil, false, fmt.Errorf("issue credentials of %s: %w", holder.Name, err)
		}
		wrote = wrote || w
	}
	return files, wrote, nil
}

// operatorCredentials opens what the manager itself uses towards workers.
func operatorCredentials(s kube.Secret, now func() time.Time) (*pki.Credentials, error) {
	return pki.NewCredentials(pki.OpenDir(secretFiles(s.Data), now).Load(pki.RoleOperator), now, zap.NewNop())
}
