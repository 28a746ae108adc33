/** The part of a workflow that its executions run. Triggers keep each version of it, so every way to write makes one. */
const definition = `jsonb_build_object('flow_data', new.flow_data, 'variables', new.variables, 'options', new.options,
  'authority_Id', new."authority_Id", 'tenant_Id', new."tenant_Id")`
const columns = (row: string) =>
  ['flow_data', 'variables', 'options', '"authority_Id"', '"tenant_Id"'].map((name) => `${row}.${name}`).join(', ')

const versions = [
  `create table "svc_WorkflowVersion" (
    "workflow_Id" text not null references "svc_Workflow" (id) on update cascade on delete cascade,
    version integer not null,
    definition jsonb not null,
    "createdAt" timestamptz not null default now(),
    primary key ("workflow_Id", version)
  )`,
  `create function svc_count_workflow_version() returns trigger language plpgsql as $$
     begin
       if tg_op = 'INSERT' then
         new.version := 1;
       elsif (${columns('old')}) is distinct from (${columns('new')}) then
         new.version := old.version + 1;
       else
         new.version := old.version;
       end if;
       return new;
     end
   $$`,
  `create trigger svc_count_version before insert or update on "svc_Workflow"
   for each row execute function svc_count_workflow_version()`,
  `create function svc_keep_workflow_version() returns trigger language plpgsql as $$
     begin
       insert into "svc_WorkflowVersion" ("workflow_Id", version, definition) values (new.id, new.version, ${definition});
       return null;
     end
   $$`,
  `create trigger svc_keep_version_new after insert on "svc_Workflow"
   for each row execute function svc_keep_workflow_version()`,
  `create trigger svc_keep_version after update on "svc_Workflow"
   for each row when (old.version <> new.version) execute function svc_keep_workflow_version()`,
  `create unique index "svc_Workflow_webhook_unique" on "svc_Workflow" (trigger_webhook_path, coalesce(trigger_webhook_method, 'POST'))
   where status = 'active' and trigger_type = 'webhook' and "deletedAt" is null`,
]

const executions = [
  // A row changes several times within a second and then never again.
  `alter table "svc_WorkflowExecution" set (fillfactor = 70)`,
  `create index "svc_WorkflowExecution_due_idx" on "svc_WorkflowExecution" (due_at)
   where status in ('queued', 'running') and claim_token is null`,
  `create index "svc_WorkflowExecution_claimed_idx" on "svc_WorkflowExecution" (heartbeat_at)
   where status = 'running' and claim_token is not null`,
  `create index "svc_WorkflowExecution_parent_idx" on "svc_WorkflowExecution" ("parent_Id") where "parent_Id" is not null`,
  // When a schedule is due next, and the expression from which that follows.
  `create table "svc_WorkflowSchedule" (
    "workflow_Id" text primary key references "svc_Workflow" (id) on update cascade on delete cascade,
    cron text not null,
    timezone text not null,
    "nextAt" timestamptz not null
  )`,
  // The time of the last failure that was notified, and the number of mails sent in the current hour.
  `create table "svc_WorkflowUse" (
    "workflow_Id" text primary key references "svc_Workflow" (id) on update cascade on delete cascade,
    "notifiedAt" timestamptz,
    "mailHour" timestamptz,
    mails integer not null default 0
  )`,
]

/** Signed messages that began executions, each once: `message` is a digest of its id. Safe to run again. */
export const messagesSql = [
  `create table if not exists "svc_WorkflowMessage" (
    "execution_Id" uuid primary key references "svc_WorkflowExecution" (id) on delete cascade,
    "workflow_Id" text not null references "svc_Workflow" (id) on update cascade on delete cascade,
    message text not null,
    unique ("workflow_Id", message)
  )`,
]

export const workflows = [...versions, ...executions, ...messagesSql]
