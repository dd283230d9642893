package replicahost

import (
	"fmt"
	"slices"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/worker"
)

// Assignment is what is asked of the host for one life of one replica.
type Assignment struct {
	Volume      string   `json:"volume"`
	Index       int32    `json:"index"`
	Incarnation int64    `json:"incarnation"`
	Member      int64    `json:"member"`
	Members     []string `json:"members"` // ID=REPLICA@HOST:PORT[/SERVERNAME], this one too
	// Claim is the name of the backing claim.
	Claim string `json:"claim"`
	// Release asks the host to let go of the replica.
	Release bool `json:"release,omitempty"`
	// Retired says that another life has taken its place.
	Retired bool `json:"retired,omitempty"`
	// Initialised says that the volume's status knows that this life has run.
	Initialised bool `json:"initialised,omitempty"`
}

// Key names the assignment: in files, and among the host's replicas.
func (a *Assignment) Key() string { return fmt.Sprintf("%s.%d", a.Replica(), a.Incarnation) }

// Replica is the replica's name.
func (a *Assignment) Replica() string { return api.ReplicaName(a.Volume, a.Index) }

// sameWorker reports whether the worker of one can go on for the other.
func (a *Assignment) sameWorker(o *Assignment) bool {
	return a.Member == o.Member && a.Release == o.Release && slices.Equal(a.Members, o.Members)
}

// Addresses says where a replica is reached: HOST:PORT and the name in its
// certificate.
type Addresses func(volume string, index int32) (addr, serverName string)

// serviceAddresses are the replicas' Services.
func serviceAddresses(namespace, domain string) Addresses {
	return func(volume string, index int32) (string, string) {
		host := api.ServiceDNS(volume, index, namespace, domain)
		return fmt.Sprintf("%s:%d", host, api.WorkerPort), ""
	}
}

// assignments lists what a volume asks of a node's host.
func assignments(v *api.ReplicatedVolume, node string, addresses Addresses) []Assignment {
	var members []string
	for _, r := range v.Spec.Replicas {
		addr, name := addresses(v.Name, r.Index)
		m := worker.Member{ID: uint64(r.Member), Replica: api.ReplicaName(v.Name, r.Index), Addr: addr, ServerName: name}
		members = append(members, m.String())
	}
	var all []Assignment
	for _, r := range v.HostReplicas(node) {
		a := Assignment{
			Volume: v.Name, Index: r.Index, Incarnation: r.Incarnation, Member: r.Member, Members: members,
			Claim: api.BackingClaimName(v.Name, r.Index, r.Incarnation), Release: r.State == api.StateReleased,
		}
		if st := v.ReplicaStatus(r.Index); st != nil {
			a.Initialised = st.Initialized
		}
		all = append(all, a)
	}
	for _, r := range v.Spec.Retired {
		if r.Node != node {
			continue
		}
		all = append(all, Assignment{
			Volume: v.Name, Index: r.Index, Incarnation: r.Incarnation, Member: r.Member,
			Claim: api.BackingClaimName(v.Name, r.Index, r.Incarnation), Release: true, Retired: true,
		})
	}
	return all
}

// workerMembers parses the members.
func (a *Assignment) workerMembers() ([]worker.Member, error) {
	var all []worker.Member
	for _, text := range a.Members {
		m, err := worker.ParseMember(text)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}
