"""The service of a federation: the API, access to it, the job service and its store.

API    `http_server` bounds connections, and `requests` checks what they bring; `api` and `operator_api` have all that
       can be asked for, and `authentication` who may. `events` and `outputs` are answers that go on.
Jobs   `job_service` joins the parts: `submissions` to schedulers, `failover` between these, `user_shares`, `queries`,
       and `reports` of hosts, which stay in memory. `figures` and `telemetry` measure; `forecaster` looks ahead.
Store  `store` writes and reads jobs: `schema` is its file; `rows`, `task_rows`, `descriptions` and `ledgers` are its
       tables. `batches` commits, `archive` takes out what ended long ago, and `marks` remembers how far it has come.
       Each row has one of the `checksums`, which `soundness` compares; `checks` does so for all files of a host.
"""
