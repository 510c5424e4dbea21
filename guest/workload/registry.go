package workload

// All returns every workload, by name.
func All() []Workload {
	return []Workload{
		netdevBulkDelete{},
		netdevDelete{},
		netnsChurn{},
		nexthopDelete{},
		pktgen{},
		qdiscStress{},
		script{},
	}
}
