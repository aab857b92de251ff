"""Megha: federated scheduling on an eventually consistent view, as a base and what is attached to it.

    users > Submit > GlobalMaster (gm/0 ..)           LocalMaster (lm/0 ..)               Node (node/0 ..)
                     view: what seems free  -Request->  allocations: what is free -Launch->  runs attempts
                     queue, ledger of jobs  <-Refusal-  attempts: what runs      <-Completed-
                                            <-TasksEnded, StateUpdate-

Words    A *unit* is a slot, or a machine where tasks ask for amounts; a *partition* is a part of a Local Master's
         cluster that is *internal* to one Global Master and *external* to the others. A *view* is a Global Master's
         belief of what is free. A placement that turns out to be invalid is an *inconsistency*, answered by a
         *refusal* with the state. A *repartition* lends a *logical node* of an external machine. An *attempt* is one
         run of a task. A *claim* is a preemption under way, with *victims*, for a *beneficiary*. An *epoch* is the
         reign of one of a pair of Local Masters; a *term* that of a Global Master over its jobs.
Base     messages, partitions, view, global_master; allocations, local_master; config, assembly (the recipe).
         It is the paper of 2023 on slots, and runs without the rest.
Attached amounts: several resources, repartition (2021, IV-B). shares: users, preemption (2021, IV-C). recovery:
         crashes (2021, IV-D). gangs: tasks that run only together, in two phases. reasons: reports of decisions. Each
         calls a master by a protocol of `hosts`, and handles messages of its own, see `Component.attached`.
Registry designs: Megha, its central form and the first Megha, with the stages that methods of the base and of what is
         attached realise.
"""
