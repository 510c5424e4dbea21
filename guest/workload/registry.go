package workload

// All returns every workload, by name.
func All() []Workload {
	return []Workload{
		netdevDelete{},
		netnsChurn{},
		nexthopDelete{},
		pktgen{},
		qdiscStress{},
	}
}
