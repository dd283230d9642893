package api

// Condition types of a ReplicatedVolume. Each is explained by reason and message.
const (
	// ConditionProvisioned is True once every backing claim is bound, every
	// replica has run, and the volume has had a quorum. It never goes back.
	ConditionProvisioned = "Provisioned"
	// ConditionAvailable is True while a coordinator with a quorum answers.
	ConditionAvailable = "Available"
	// ConditionRedundant is True while every replica takes part and is caught up.
	ConditionRedundant = "Redundant"
	// ConditionPublished is True once a PersistentVolume has named the volume.
	// It never goes back: a volume that was handed out is not destroyed unasked.
	ConditionPublished = "Published"
	// ConditionTrusted is True while all credentials are valid and renewed in time.
	ConditionTrusted = "Trusted"
	// ConditionStateLost is True when a recorded replica has lost its state.
	ConditionStateLost = "StateLost"
	// ConditionTransition says how a requested change of runtime goes. It is
	// absent while none was requested.
	ConditionTransition = "Transition"
	// ConditionReplacement says how a requested replacement of a replica goes. It
	// is absent while none was requested.
	ConditionReplacement = "Replacement"
	// ConditionReclaim says how the destruction of the volume goes. It is
	// absent while that was not requested.
	ConditionReclaim = "Reclaim"
)

// Reasons of conditions, and of Events of the same matter.
const (
	ReasonDone     = "Done"
	ReasonQuorum   = "Quorum"
	ReasonNoQuorum = "NoQuorum"
	ReasonUnknown  = "Unknown" // nobody could be asked

	// Provisioning.
	ReasonCreatingCredentials = "CreatingCredentials"
	ReasonBackingClaimPending = "BackingClaimPending"
	ReasonBackingClaimLost    = "BackingClaimLost"
	ReasonReplicaStarting     = "ReplicaStarting"
	ReasonReplacedElsewhere   = "PlacedAgain"
	ReasonTooFewNodes         = "TooFewEligibleNodes"

	// Replicas.
	ReasonReplicaBehind      = "ReplicaBehind"
	ReasonReplicaUnavailable = "ReplicaUnavailable"
	ReasonReplicaStateLost   = "ReplicaStateLost"
	ReasonAllInSync          = "AllReplicasInSync"

	// Trust.
	ReasonRenewed     = "Renewed"
	ReasonRenewFailed = "RenewFailed"

	// Transition.
	ReasonGenerationStale   = "ObservedGenerationStale"
	ReasonConsumersPresent  = "ConsumersPresent"
	ReasonNodeNotReady      = "NodeNotReady"
	ReasonWorkersStopping   = "WorkersStopping"
	ReasonReplicasStarting  = "ReplicasStarting"
	ReasonSameRuntime       = "AlreadyInEffect"
	ReasonOneWay            = "OneWay"
	ReasonTransitionPending = "TransitionPending"

	// Replacement.
	ReasonIncarnationStale  = "IncarnationStale"
	ReasonReplacementBusy   = "ReplacementBusy"
	ReasonRuntimeNotShared  = "RuntimeNotShared"
	ReasonNodeNotEligible   = "NodeNotEligible"
	ReasonQuorumPresent     = "QuorumPresent"
	ReasonSurvivorNotReady  = "SurvivorNotReady"
	ReasonReplicaJoining    = "ReplicaJoining"
	ReasonReplicaRefused    = "ReplicaRefused"
	ReasonReplacementBegins = "ReplacementBegins"

	// Reclamation.
	ReasonVolumeInUse          = "VolumeInUse" // a PersistentVolume or claim still names it
	ReasonNotRequested         = "NotRequested"
	ReasonFencing              = "Fencing"
	ReasonFenced               = "Fenced"
	ReasonReleasing            = "WaitingForRelease"
	ReasonReclaimingClaims     = "ReclaimingBackingClaims"
	ReasonRemovingCredentials  = "RemovingCredentials"
	ReasonUnwindingUnprovision = "UnwindingAbandonedVolume"

	// The cluster.
	ReasonOldSchema = "OldSchema"
)

// Reasons that a host gives in status.replicas[].reason.
const (
	HostReasonWaitingForClaim      = "WaitingForBackingClaim"
	HostReasonWaitingForPublish    = "WaitingForPublication"
	HostReasonPublicationConflict  = "PublicationConflict"
	HostReasonWaitingForMount      = "WaitingForMount"
	HostReasonTooManyWorkers       = "TooManyWorkers"
	HostReasonTooManyStarts        = "TooManyStarts"
	HostReasonNoFreePort           = "NoFreePort"
	HostReasonNoCredentials        = "NoCredentials"
	HostReasonOpening              = "OpeningReplica"
	HostReasonReplicaLocked        = "ReplicaLocked"
	HostReasonIdentityConflict     = "IdentityConflict"
	HostReasonRecordUnreadable     = "RecordUnreadable"
	HostReasonStateLost            = "ReplicaStateLost"
	HostReasonWorkerFailed         = "WorkerFailed"
	HostReasonReplaced             = "Replaced"
	HostReasonServing              = "Serving"
	HostReasonWaitingForCheckpoint = "WaitingForCheckpointSlot"
	HostReasonCatchingUp           = "CatchingUp"
	HostReasonClosingWorker        = "ClosingWorker"
	HostReasonUnpublishing         = "Unpublishing"
	HostReasonReleased             = "Released"
)
