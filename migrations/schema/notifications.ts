/**
 * The actor of the change gets the same message on its own connection (src/events/commit.ts), as INFO, because
 * client_min_messages cannot silence that.
 */
export const notifySql = `create or replace function svc_notify() returns trigger language plpgsql as $$
  begin
    perform pg_notify(tg_argv[0], '');
    if nullif(current_setting('svc.actor', true), '') is not null then
      raise info '% ', tg_argv[0];
    end if;
    return null;
  end
$$`

/** Triggers that tell every process of a change at once. Writes of items never notify. */
export const notifications = [
  notifySql,
  // Names the changed sessions, so that other processes forget only these; more than 50 become one message, `*`.
  // The second argument is the column that names them. The actor of the change is told as by svc_notify. A new row ends no
  // session.
  `create function svc_notify_sessions() returns trigger language plpgsql as $$
  declare message text;
  begin
    for message in
      select case when (select count(*) from changed) > 50 then '*' else tg_argv[0] || ':' || (to_jsonb(c)->>tg_argv[1]) end
      from changed c group by 1
    loop
      perform pg_notify('svc_sessions', message);
      if tg_op <> 'INSERT' and nullif(current_setting('svc.actor', true), '') is not null then
        raise info 'svc_sessions %', message;
      end if;
    end loop;
    return null;
  end
$$`,
  // Only a waiting task is a reason to look; claims and outcomes are silent.
  `create function svc_notify_tasks() returns trigger language plpgsql as $$
  begin
    if exists (select from changed where task_status = 'Not started' and scheduled_time <= now() + interval '4 hours')
    then perform pg_notify('svc_tasks', '');
    end if;
    return null;
  end
$$`,
  ...Object.entries({
    svc_SchemaDefinition: 'svc_catalog',
    svc_Settings: 'svc_settings',
    svc_Role: 'svc_access',
    svc_Permission: 'svc_access',
    svc_ACL: 'svc_access',
  }).map(([table, channel]) => notifyOn(table, 'svc_notify', 'insert or update or delete', channel)),
  notifyOn('svc_Workflow', 'svc_notify', 'insert or update or delete or truncate', 'svc_workflows'),
  ...notifySessions('svc_Sessions', 'session', 'id', ['delete', 'update']),
  ...notifySessions('svc_User', 'user', 'id', ['delete', 'update']),
  ...notifySessions('svc_UserRole', 'user', 'user_Id', ['insert', 'delete', 'update']),
  ...notifySessions('svc_Role', 'role', 'id', ['delete', 'update']),
  ...notifySessions('svc_Tenant', 'tenant', 'id', ['delete', 'update']),
  // Processes forget a revoked key like an ended session.
  ...notifySessions('svc_ApiKey', 'session', 'id', ['delete']),
  ...['svc_Sessions', 'svc_User', 'svc_UserRole', 'svc_Role', 'svc_Tenant'].map((table) =>
    notifyOn(table, 'svc_notify_truncate', 'truncate', 'svc_sessions'),
  ),
  ...['insert', 'update'].map(
    (change) => `create trigger svc_notify_${change} after ${change} on "svc_Tasks" referencing new table as changed
    for each statement execute function svc_notify_tasks()`,
  ),
]

function notifyOn(table: string, trigger: string, change: string, channel: string): string {
  return `create trigger ${trigger} after ${change} on "${table}" for each statement execute function svc_notify('${channel}')`
}

function notifySessions(table: string, kind: string, column: string, changes: readonly string[]): string[] {
  return changes.map(
    (change) =>
      `create trigger svc_notify_${change} after ${change} on "${table}" referencing ${change === 'delete' ? 'old' : 'new'} table as changed
       for each statement execute function svc_notify_sessions('${kind}', '${column}')`,
  )
}
