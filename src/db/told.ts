const prefix = 'svc_sessions '

/**
 * What a notice says of sessions: triggers tell the connection that changes them what they notify everybody of, since
 * whoever answers for the change must know (migrations/0.1.0_schema.ts). Undefined for every other notice.
 */
export function toldOfSessions(notice: string | undefined): string | undefined {
  return notice?.startsWith(prefix) ? notice.slice(prefix.length) : undefined
}
