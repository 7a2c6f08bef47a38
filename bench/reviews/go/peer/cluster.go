package main

import (
	"bytes"
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// settings are those of kubevirt-webhook that this server knows; any other is an error.
type settings struct {
	Schedulers map[string]struct {
		HealthCheck string `json:"healthCheck"` // lease NAMESPACE/NAME
	} `json:"schedulers"`
	Scheduling struct {
		SchedulerName string `json:"schedulerName"`
	} `json:"scheduling"`
	ExcludedNamespaces []string `json:"excludedNamespaces"`
}

func readSettings(path string) (*settings, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	read := &settings{ExcludedNamespaces: []string{"kube-system", "kube-public", "kube-node-lease"}}
	return read, yaml.UnmarshalStrict(content, read)
}

// key names an object; what has no namespace has the empty one.
type key struct{ namespace, name string }

// store is the watched copy of one kind, with the API server behind it.
type store[T any] struct {
	mutex   sync.RWMutex
	objects map[key]*T
	get     func(ctx context.Context, at key) (*T, error) // From the API server; nil: there is none.
}

// cached is the object as it was watched last; what is not there is requested, for a watch may be late.
func (s *store[T]) cached(ctx context.Context, at key) (*T, error) {
	s.mutex.RLock()
	object := s.objects[at]
	s.mutex.RUnlock()
	if object != nil {
		return object, nil
	}
	return s.get(ctx, at)
}

func (s *store[T]) list() []*T {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return slices.AppendSeq(make([]*T, 0, len(s.objects)), maps.Values(s.objects))
}

// put adds an object of a file. In the benchmark the files are the API server too.
func (s *store[T]) put(at key, content []byte) error {
	object := new(T)
	if err := json.Unmarshal(content, object); err != nil {
		return fmt.Errorf("%s/%s: %w", at.namespace, at.name, err)
	}
	if s.objects == nil {
		s.objects = map[key]*T{}
		s.get = func(ctx context.Context, at key) (*T, error) { return s.objects[at], ctx.Err() }
	}
	s.objects[at] = object
	return nil
}

type namespace struct {
	Metadata struct {
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

type instancetype struct {
	Spec struct {
		SchedulerName string `json:"schedulerName"`
	} `json:"spec"`
}

// kubeVirt is the object that says where KubeVirt runs, and how.
type kubeVirt struct {
	Spec struct {
		Configuration struct {
			Developer struct {
				NodeSelectors map[string]string `json:"nodeSelectors"`
				UseEmulation  bool              `json:"useEmulation"`
				CPURatio      int64             `json:"cpuAllocationRatio"`
			} `json:"developerConfiguration"`
		} `json:"configuration"`
	} `json:"spec"`
}

type lease struct {
	Spec struct {
		HolderIdentity string `json:"holderIdentity"`
	} `json:"spec"`
}

// vmi is a VirtualMachineInstance as far as it decides over schedulers and nodes.
type vmi struct {
	Metadata struct {
		UID string `json:"uid"`
	} `json:"metadata"`
	Spec struct {
		SchedulerName string              `json:"schedulerName"`
		Architecture  string              `json:"architecture"`
		NodeSelector  map[string]string   `json:"nodeSelector"`
		Affinity      *corev1.Affinity    `json:"affinity"`
		Tolerations   []corev1.Toleration `json:"tolerations"`
		Domain        struct {
			CPU struct {
				Cores     int64  `json:"cores"`
				Sockets   int64  `json:"sockets"`
				Threads   int64  `json:"threads"`
				Model     string `json:"model"`
				Dedicated bool   `json:"dedicatedCpuPlacement"`
			} `json:"cpu"`
			Memory struct {
				Guest *resource.Quantity `json:"guest"`
			} `json:"memory"`
			Resources corev1.ResourceRequirements `json:"resources"`
			Machine   machine                     `json:"machine"`
		} `json:"domain"`
	} `json:"spec"`
	Status struct {
		NodeName string  `json:"nodeName"`
		Machine  machine `json:"machine"`
	} `json:"status"`
}

type machine struct {
	Type string `json:"type"`
}

// cluster is what decisions depend on.
type cluster struct {
	namespaces                          store[namespace]
	vmis                                store[vmi]
	instancetypes, clusterInstancetypes store[instancetype]
	nodes                               store[corev1.Node]
	leases                              store[lease]
	kubeVirts                           store[kubeVirt]

	excluded    map[string]bool   // Namespaces.
	controllers map[string]bool   // User names of virt-controller.
	unavailable map[string]string // Why, by scheduler; empty: it is available.
	kubeVirt    *kubeVirt
}

func readCluster(directory string, settings *settings) (*cluster, error) {
	c := &cluster{excluded: map[string]bool{}, controllers: map[string]bool{}, unavailable: map[string]string{}, kubeVirt: &kubeVirt{}}
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); err == nil; {
			var object jsontext.Value
			if err = documents.Decode(&object); err == nil {
				err = c.add(object)
			}
		}
		if !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
	for _, name := range settings.ExcludedNamespaces {
		c.excluded[name] = true
	}
	for at, object := range c.kubeVirts.objects {
		c.excluded[at.namespace], c.kubeVirt = true, object
		c.controllers["system:serviceaccount:"+at.namespace+":kubevirt-controller"] = true
	}
	for name, declared := range settings.Schedulers {
		place := strings.TrimPrefix(declared.HealthCheck, "lease ")
		where, lease, _ := strings.Cut(place, "/")
		if held := c.leases.objects[key{where, lease}]; held == nil {
			c.unavailable[name] = "Lease " + place + " does not exist"
		} else if c.unavailable[name] = ""; held.Spec.HolderIdentity == "" { // Files show no renewals.
			c.unavailable[name] = "Lease " + place + " has been released by its holder"
		}
	}
	return c, err
}

func (c *cluster) add(content jsontext.Value) (err error) {
	var object struct {
		Kind     string `json:"kind"`
		Metadata struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"metadata"`
		Items []jsontext.Value `json:"items"`
	}
	if err := json.Unmarshal(content, &object); err != nil {
		return err
	}
	at := key{object.Metadata.Namespace, object.Metadata.Name}
	switch object.Kind {
	case "List":
		for _, item := range object.Items {
			err = errors.Join(err, c.add(item))
		}
	case "Namespace":
		err = c.namespaces.put(at, content)
	case "VirtualMachineInstance":
		err = c.vmis.put(at, content)
	case "VirtualMachineInstancetype":
		err = c.instancetypes.put(at, content)
	case "VirtualMachineClusterInstancetype":
		err = c.clusterInstancetypes.put(at, content)
	case "Node":
		err = c.nodes.put(at, content)
	case "Lease":
		err = c.leases.put(at, content)
	case "KubeVirt":
		err = c.kubeVirts.put(at, content)
	}
	return err
}
