package api

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// VolumePhase is a volume's state in one word.
// +kubebuilder:validation:Enum=Provisioning;Ready;Degraded;Unavailable;Transitioning;Reclaiming
type VolumePhase string

// Phases of a volume.
const (
	PhaseProvisioning  VolumePhase = "Provisioning"
	PhaseReady         VolumePhase = "Ready"
	PhaseDegraded      VolumePhase = "Degraded"
	PhaseUnavailable   VolumePhase = "Unavailable"
	PhaseTransitioning VolumePhase = "Transitioning"
	PhaseReclaiming    VolumePhase = "Reclaiming"
)

// ReplicaPhase is the state of one replica on its host.
// +kubebuilder:validation:Enum=Pending;Acquiring;Starting;Running;Rebuilding;Unavailable;ReplicaStateLost;Releasing;Released
type ReplicaPhase string

// Phases of a replica.
const (
	ReplicaPending     ReplicaPhase = "Pending"          // waits for something that reason names
	ReplicaAcquiring   ReplicaPhase = "Acquiring"        // asks for its storage
	ReplicaStarting    ReplicaPhase = "Starting"         // its worker opens
	ReplicaRunning     ReplicaPhase = "Running"          // its worker listens and takes part
	ReplicaRebuilding  ReplicaPhase = "Rebuilding"       // takes part, and receives a checkpoint
	ReplicaUnavailable ReplicaPhase = "Unavailable"      // does not run; reason says why
	ReplicaStateLost   ReplicaPhase = "ReplicaStateLost" // its journal or identity is gone
	ReplicaReleasing   ReplicaPhase = "Releasing"        // closes and lets go of its storage
	ReplicaReleased    ReplicaPhase = "Released"         // has let go; see released
)

// ReplicaRole is a replica's part in the log, as its host last saw it.
// +kubebuilder:validation:Enum=Coordinator;Follower;Learner;Candidate;None
type ReplicaRole string

// Roles of a replica.
const (
	RoleCoordinator ReplicaRole = "Coordinator"
	RoleFollower    ReplicaRole = "Follower"
	RoleLearner     ReplicaRole = "Learner"
	RoleCandidate   ReplicaRole = "Candidate"
	RoleNone        ReplicaRole = "None"
)

// ReplicatedVolumeStatus is how the volume is.
type ReplicatedVolumeStatus struct {
	// The state in one word.
	// +optional
	Phase VolumePhase `json:"phase,omitempty"`
	// The runtime in effect.
	// +optional
	Runtime Runtime `json:"runtime,omitempty"`
	// Replicas that take part and are caught up, of all replicas, like 2/3.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	Ready string `json:"ready,omitempty"`
	// The same as a number.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// metadata.generation that the manager has last acted on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Who owns a ReadWriteOnce volume, as the log said when last asked.
	// +optional
	Owner *VolumeOwner `json:"owner,omitempty"`
	// The fence that the log holds against new sessions, once the volume is to be destroyed.
	// +optional
	Fence *FenceStatus `json:"fence,omitempty"`
	// Losses that are known: replicas whose journal or identity is gone. They stay recorded.
	// +listType=map
	// +listMapKey=index
	// +listMapKey=incarnation
	// +kubebuilder:validation:MaxItems=64
	// +optional
	KnownLoss []KnownLoss `json:"knownLoss,omitempty"`
	// The replicas, each life written by its own host. What a host has said stays while it is away, also of a life that was replaced.
	// +listType=map
	// +listMapKey=index
	// +listMapKey=incarnation
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Replicas []ReplicaStatus `json:"replicas,omitempty"`
	// Replaced copies, each written by the host that still has it.
	// +listType=map
	// +listMapKey=index
	// +listMapKey=incarnation
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Retired []ReplicaStatus `json:"retired,omitempty"`
	// What is true of the volume, and what it waits for.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// VolumeOwner is the node that owns a ReadWriteOnce volume.
type VolumeOwner struct {
	// The node.
	Node string `json:"node"`
	// The session in the log.
	// +optional
	Session int64 `json:"session,omitempty"`
	// Since when.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// FenceStatus is a fence that the quorum has committed.
type FenceStatus struct {
	// When it was seen committed.
	At metav1.Time `json:"at"`
	// The coordinator's applied index then.
	Index int64 `json:"index"`
}

// KnownLoss is a replica's state that is gone.
type KnownLoss struct {
	// The replica's number.
	Index int32 `json:"index"`
	// The life that lost its state.
	Incarnation int64 `json:"incarnation"`
	// The node where it was.
	Node string `json:"node"`
	// What was found.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
	// How much application data is lost. A replica cannot know.
	// +kubebuilder:default=Unknown
	// +kubebuilder:validation:Enum=Unknown
	ApplicationData string `json:"applicationData,omitempty"`
	// When it was seen.
	Since metav1.Time `json:"since"`
}

// ReplicaStatus is one replica as its host knows it.
type ReplicaStatus struct {
	// The replica's number.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4
	Index int32 `json:"index"`
	// The life that this is about.
	Incarnation int64 `json:"incarnation"`
	// The node that speaks.
	// +optional
	Node string `json:"node,omitempty"`
	// UID of the backing claim in use.
	// +optional
	PVCUID string `json:"pvcUID,omitempty"`
	// Name of the backing claim's volume.
	// +optional
	PV string `json:"pv,omitempty"`
	// The state in one word.
	// +optional
	Phase ReplicaPhase `json:"phase,omitempty"`
	// Why, as one word.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// Why, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// Since when phase and reason are so.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// The replica's identity has been written to its storage: it is never placed again.
	// +optional
	Initialized bool `json:"initialized,omitempty"`
	// The part in the log.
	// +optional
	Role ReplicaRole `json:"role,omitempty"`
	// The log's term.
	// +optional
	Term int64 `json:"term,omitempty"`
	// The last entry that is applied.
	// +optional
	AppliedIndex int64 `json:"appliedIndex,omitempty"`
	// Entries behind what the coordinator has committed.
	// +optional
	Lag int64 `json:"lag,omitempty"`
	// The address of the worker, HOST:PORT.
	// +optional
	// +kubebuilder:validation:MaxLength=300
	Address string `json:"address,omitempty"`
	// The host has closed the worker, undone the publication, and will not touch this storage again.
	// +optional
	Released *ReleaseAcknowledgement `json:"released,omitempty"`
}

// ReleaseAcknowledgement says exactly what was let go of. The manager compares all of it.
type ReleaseAcknowledgement struct {
	// UID of the backing claim.
	PVCUID string `json:"pvcUID"`
	// Name of its volume.
	PV string `json:"pv"`
	// The node.
	Node string `json:"node"`
	// The replica's life.
	Incarnation int64 `json:"incarnation"`
	// When.
	At metav1.Time `json:"at"`
}
