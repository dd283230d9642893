package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"tak-os.org/tak-replicated/kube/api"
)

// neededFields are what the driver can't do without; older releases of the
// resource lack some of them. Lists are entered by themselves.
var neededFields = []string{
	"spec.accessMode", "spec.runtime", "spec.claim.uid", "spec.replicas.incarnation", "spec.replicas.member", "spec.replicas.state",
	"spec.transition.observedGeneration", "spec.reclaim.reason", "spec.quota",
	"status.runtime", "status.owner.node", "status.fence", "status.replicas.released.pvcUID", "status.replicas.initialized", "status.conditions",
}

// CheckSchema reports ErrOldSchema, naming what is missing, when the cluster's
// ReplicatedVolume resource lacks fields that the driver needs; the API server would
// drop them silently.
func (c *Client) CheckSchema(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	name := api.Resource + "." + api.Group
	raw, err := c.core.CoreV1().RESTClient().Get().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + name).DoRaw(ctx)
	if err != nil {
		return wrap(err, "get resource definition %s", name)
	}
	missing, err := missingFields(raw)
	if err != nil {
		return wrap(err, "read resource definition %s", name)
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: its definition %s lacks %s; apply the one of this release", ErrOldSchema, name, strings.Join(missing, ", "))
	}
	return nil
}

// schema is the part of a JSON schema that says which fields there are.
type schema struct {
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
	Keep       bool              `json:"x-kubernetes-preserve-unknown-fields"`
}

func missingFields(definition []byte) ([]string, error) {
	var d struct {
		Spec struct {
			Versions []struct {
				Name   string `json:"name"`
				Served bool   `json:"served"`
				Schema struct {
					Root schema `json:"openAPIV3Schema"`
				} `json:"schema"`
				Subresources struct {
					Status *struct{} `json:"status"`
				} `json:"subresources"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(definition, &d); err != nil {
		return nil, err
	}
	for _, v := range d.Spec.Versions {
		if v.Name != api.Version || !v.Served {
			continue
		}
		var missing []string
		if v.Subresources.Status == nil {
			missing = append(missing, "the status subresource")
		}
		for _, path := range neededFields {
			if !v.Schema.Root.has(strings.Split(path, ".")) {
				missing = append(missing, path)
			}
		}
		return missing, nil
	}
	return []string{"version " + api.Version}, nil
}

func (s schema) has(path []string) bool {
	if len(path) == 0 || s.Keep {
		return true
	}
	if s.Items != nil {
		return s.Items.has(path)
	}
	next, ok := s.Properties[path[0]]
	return ok && next.has(path[1:])
}
