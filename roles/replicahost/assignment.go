package replicahost

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

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
	// Retired says that another life takes or has taken its place.
	Retired bool `json:"retired,omitempty"`
	// Joins says that a former life still takes part: its Service leads there.
	Joins bool `json:"joins,omitempty"`
	// Forced asks the host to make the replica, as it finds it on the volume of an
	// earlier life, the only member under this incarnation and member id.
	Forced bool `json:"forced,omitempty"`
	// Initialised says that the volume's status knows that this life has run.
	Initialised bool `json:"initialised,omitempty"`
}

// Key names the assignment: in files, and among the host's replicas.
func (a *Assignment) Key() string { return fmt.Sprintf("%s.%d", a.Replica(), a.Incarnation) }

// keyForm is what keys look like.
var keyForm = regexp.MustCompile(`^(.+)-r(\d+)\.(\d+)$`)

// keyed is what a key says of its assignment.
func keyed(key string) (a Assignment, ok bool) {
	m := keyForm.FindStringSubmatch(key)
	if m == nil {
		return a, false
	}
	index, noIndex := strconv.ParseInt(m[2], 10, 32)
	incarnation, noLife := strconv.ParseInt(m[3], 10, 64)
	a = Assignment{Volume: m[1], Index: int32(index), Incarnation: incarnation}
	return a, noIndex == nil && noLife == nil && a.Index > 0 && a.Incarnation > 0 && a.Key() == key
}

// Replica is the replica's name.
func (a *Assignment) Replica() string { return api.ReplicaName(a.Volume, a.Index) }

// sameWorker reports whether the worker of one can go on for the other. Where the
// others are it has to know, not which life each is in: the log says that.
func (a *Assignment) sameWorker(o *Assignment) bool {
	return a.Member == o.Member && a.Release == o.Release && slices.EqualFunc(a.Members, o.Members, func(m, n string) bool {
		return placeOf(m) == placeOf(n)
	})
}

// placeOf is what a member's text says beside its id.
func placeOf(member string) string {
	_, place, _ := strings.Cut(member, "=")
	return place
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
	var all []Assignment
	for _, r := range v.HostReplicas(node) {
		a := Assignment{
			Volume: v.Name, Index: r.Index, Incarnation: r.Incarnation, Member: r.Member, Members: members(v, r.Index, r.Member, addresses),
			Claim: v.BackingClaim(&r), Release: r.State == api.StateReleased, Joins: v.Joining(r.Index) != nil, Forced: r.ClaimOf != 0,
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
			Volume: v.Name, Index: r.Index, Incarnation: r.Incarnation, Member: r.Member, Members: members(v, r.Index, r.Member, addresses),
			Claim: v.RetiredClaim(&r), Release: r.State != api.StateServing, Retired: true, Initialised: true,
		})
	}
	return all
}

// members are a volume's members as one of them is told: itself in the life that is meant,
// the others in their present ones.
func members(v *api.ReplicatedVolume, index int32, member int64, addresses Addresses) []string {
	var all []string
	for _, r := range v.Spec.Replicas {
		addr, name := addresses(v.Name, r.Index)
		m := worker.Member{ID: uint64(r.Member), Replica: api.ReplicaName(v.Name, r.Index), Addr: addr, ServerName: name}
		if r.Index == index {
			m.ID = uint64(member)
		}
		all = append(all, m.String())
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
