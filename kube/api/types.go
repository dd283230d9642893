package api

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Aliases, so that who speaks of volumes needs no other package.
type (
	Condition       = metav1.Condition
	ConditionStatus = metav1.ConditionStatus
	Time            = metav1.Time
	ObjectMeta      = metav1.ObjectMeta
	Quantity        = resource.Quantity
)

// AccessMode says who may have the volume mounted at one time.
// +kubebuilder:validation:Enum=ReadWriteMany;ReadWriteOnce
type AccessMode string

// Access modes.
const (
	ReadWriteMany AccessMode = "ReadWriteMany"
	ReadWriteOnce AccessMode = "ReadWriteOnce"
)

// Runtime says what runs a volume's replicas.
// +kubebuilder:validation:Enum=Shared;Pod
type Runtime string

// Runtimes.
const (
	RuntimeShared Runtime = "Shared" // the replica host of each node
	RuntimePod    Runtime = "Pod"    // a Pod a replica
)

// Quota says what the requested size means.
// +kubebuilder:validation:Enum=None;Enforced
type Quota string

// Quotas.
const (
	QuotaNone     Quota = "None"
	QuotaEnforced Quota = "Enforced"
)

// ReplicatedVolume is the record of one replicated filesystem volume: what was asked for, where its replicas are, and how they are.
// It is made by the driver when a claim is provisioned. Do not create or delete one by hand.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=replicatedvolumes,singular=replicatedvolume,scope=Namespaced,shortName=rvol,categories=storage
// +kubebuilder:printcolumn:name="Access",type=string,JSONPath=`.spec.accessMode`,description="Who may mount the volume: many nodes, or one"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.ready`,description="Replicas that take part and are caught up, of all replicas"
// +kubebuilder:printcolumn:name="Runtime",type=string,JSONPath=`.status.runtime`,description="What runs the replicas"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="The volume's state in one word"
// +kubebuilder:printcolumn:name="Claim",type=string,JSONPath=`.spec.claim.name`,priority=1,description="The claim that it was made for"
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=`.status.owner.node`,priority=1,description="The node that owns a ReadWriteOnce volume"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 57",message="a volume's name has at most 57 characters, since the names of Services derive from it"
type ReplicatedVolume struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What was asked for. Only the driver writes it, except transition.
	Spec ReplicatedVolumeSpec `json:"spec"`
	// How the volume is. It follows the truth, which is in the replicas' log, and is not the truth.
	// +optional
	Status ReplicatedVolumeStatus `json:"status,omitempty"`
}

// ReplicatedVolumeList is a list of ReplicatedVolumes.
// +kubebuilder:object:root=true
type ReplicatedVolumeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ReplicatedVolume `json:"items"`
}

// ReplicatedVolumeSpec is what was asked for.
// +kubebuilder:validation:XValidation:rule="size(self.replicas) == self.replicaCount",message="spec.replicas must have one entry for each of spec.replicaCount"
// +kubebuilder:validation:XValidation:rule="self.replicas.all(r, self.replicas.exists_one(o, o.node == r.node))",message="no two replicas may be on one node"
// +kubebuilder:validation:XValidation:rule="self.replicas.all(r, r.index <= self.replicaCount)",message="a replica's index is between 1 and spec.replicaCount"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.reclaim) || has(self.reclaim)",message="spec.reclaim cannot be taken back"
// +kubebuilder:validation:XValidation:rule="!has(self.replacement) || self.replacement.replica <= self.replicaCount",message="spec.replacement.replica is between 1 and spec.replicaCount"
// +kubebuilder:validation:XValidation:rule="!has(self.replacement) || !self.replacement.force || self.replicaCount == 2",message="spec.replacement.force is for a volume of two replicas that has lost one"
type ReplicatedVolumeSpec struct {
	// Who may have the volume mounted at one time. Several Pods on the owning node may share a ReadWriteOnce volume.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.accessMode cannot be changed"
	AccessMode AccessMode `json:"accessMode"`
	// How many full copies the volume has, each on a node of its own.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.replicaCount cannot be changed"
	ReplicaCount int32 `json:"replicaCount"`
	// The size that was requested, and that every backing claim requests. Applications are held to it only with quota Enforced.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.capacity cannot be changed"
	Capacity resource.Quantity `json:"capacity"`
	// Enforced: df shows the requested size, and writes beyond it fail with ENOSPC. None: the size is not enforced.
	// +kubebuilder:default=None
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.quota cannot be changed"
	Quota Quota `json:"quota,omitempty"`
	// The StorageClass of the backing claims.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.backingStorageClass cannot be changed"
	BackingStorageClass string `json:"backingStorageClass"`
	// What the volume's replicas were made to run in. status.runtime is what they run in now.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.runtime cannot be changed; ask for a transition in spec.transition"
	Runtime Runtime `json:"runtime"`
	// The claim that the volume was made for.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.claim cannot be changed"
	Claim ClaimReference `json:"claim"`
	// Where the replicas are.
	// +listType=map
	// +listMapKey=index
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	Replicas []ReplicaSpec `json:"replicas"`
	// Copies that were replaced, and that their nodes destroy when they are back.
	// +listType=map
	// +listMapKey=index
	// +listMapKey=incarnation
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Retired []RetiredSpec `json:"retired,omitempty"`
	// An operator's request to run the replicas in another runtime. Pod to Shared is the only way.
	// +optional
	Transition *TransitionRequest `json:"transition,omitempty"`
	// An operator's request to replace one replica by a new copy, on the same node or another.
	// +optional
	Replacement *ReplacementRequest `json:"replacement,omitempty"`
	// The volume is to be destroyed. The driver writes it when the volume's PersistentVolume is deleted and its class says Delete.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.reclaim cannot be changed"
	// +optional
	Reclaim *ReclaimRequest `json:"reclaim,omitempty"`
}

// ClaimReference names a PersistentVolumeClaim.
type ClaimReference struct {
	// The claim's namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace"`
	// The claim's name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// The claim's UID: another claim of that name is not meant.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
}

// ReplicaSpec is where one replica is meant to be, and which of its lives this is.
// +kubebuilder:validation:XValidation:rule="self.incarnation >= oldSelf.incarnation && self.placement >= oldSelf.placement",message="incarnation and placement of a replica only grow"
// +kubebuilder:validation:XValidation:rule="self.node == oldSelf.node || self.incarnation > oldSelf.incarnation || self.placement > oldSelf.placement",message="a replica does not move; it is replaced (a new incarnation), or placed again before it has ever run"
// +kubebuilder:validation:XValidation:rule="(self.incarnation == oldSelf.incarnation) == (self.member == oldSelf.member)",message="a new incarnation has a new member id, and only that"
// +kubebuilder:validation:XValidation:rule="!(oldSelf.state == 'Released' && self.state == 'Serving')",message="a released replica is never served again"
type ReplicaSpec struct {
	// The replica's number, from 1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4
	Index int32 `json:"index"`
	// The node that holds it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// Which life of the replica this is, from 1. A replacement starts a new one.
	// +kubebuilder:validation:Minimum=1
	Incarnation int64 `json:"incarnation"`
	// The replica's member id in the volume's log. It is never used again.
	// +kubebuilder:validation:Minimum=1
	Member int64 `json:"member"`
	// How often this life was placed before it ran, from 1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=1
	Placement int64 `json:"placement,omitempty"`
	// The life whose backing claim this one goes on with, after a forced replacement; 0: it has one of its own.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ClaimOf int64 `json:"claimOf,omitempty"`
	// Serving: the host runs it. Released: the host closes it, lets go of its storage and says so in status.
	// +kubebuilder:default=Serving
	State ReplicaState `json:"state,omitempty"`
}

// ReplicaState is what a host is to do with a replica.
// +kubebuilder:validation:Enum=Serving;Released
type ReplicaState string

// States of a replica that the manager asks for.
const (
	StateServing  ReplicaState = "Serving"
	StateReleased ReplicaState = "Released"
)

// RetiredSpec is a copy that was replaced.
// +kubebuilder:validation:XValidation:rule="!(oldSelf.state == 'Released' && self.state == 'Serving')",message="a released copy is never served again"
type RetiredSpec struct {
	// The replica's number.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4
	Index int32 `json:"index"`
	// The life that ended.
	// +kubebuilder:validation:Minimum=1
	Incarnation int64 `json:"incarnation"`
	// The node that holds the copy.
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// Its member id, which is barred from the log.
	// +kubebuilder:validation:Minimum=1
	Member int64 `json:"member"`
	// The life whose backing claim it went on with; 0: it has one of its own.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ClaimOf int64 `json:"claimOf,omitempty"`
	// Serving: it takes part until its successor has caught up. Released: its host closes it, lets go of its storage and says so in status.
	// +kubebuilder:default=Released
	State ReplicaState `json:"state,omitempty"`
}

// TransitionRequest asks for another runtime.
type TransitionRequest struct {
	// The runtime that is asked for.
	Runtime Runtime `json:"runtime"`
	// metadata.generation of the volume that the operator looked at before asking. The request is refused if anything in spec has changed since,
	// beside the request itself.
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration"`
}

// ReplacementRequest asks for a new copy in the place of one replica.
type ReplacementRequest struct {
	// The number of the replica to be replaced.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4
	Replica int32 `json:"replica"`
	// Which life of it is to be replaced. The request is refused if another one is in its place by now.
	// +kubebuilder:validation:Minimum=1
	Incarnation int64 `json:"incarnation"`
	// The node for the new copy. Without it the driver chooses, as for a new volume, and takes the same node only if there is no other.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Node string `json:"node,omitempty"`
	// The volume has two replicas and no quorum, since the one to be replaced is lost for good: the other one goes on alone with all that it
	// has, and the lost one is barred for ever.
	// +kubebuilder:default=false
	// +optional
	Force bool `json:"force"`
}

// ReclaimRequest asks for the destruction of the volume.
type ReclaimRequest struct {
	// Who asked: DeleteVolume, an operator (DestroyRetained), or the manager for a volume that was never handed out (Abandoned).
	// +kubebuilder:validation:Enum=DeleteVolume;DestroyRetained;Abandoned
	Reason ReclaimReason `json:"reason"`
	// When it was asked.
	At metav1.Time `json:"at"`
}

// ReclaimReason says who asked for a volume's destruction.
type ReclaimReason string

// Reasons for destruction.
const (
	ReclaimDeleteVolume    ReclaimReason = "DeleteVolume"
	ReclaimDestroyRetained ReclaimReason = "DestroyRetained"
	ReclaimAbandoned       ReclaimReason = "Abandoned"
)

// Bytes is a quantity of bytes.
func Bytes(n int64) Quantity { return *resource.NewQuantity(n, resource.BinarySI) }
