import { describe, expect, it } from 'vitest'
import { settingsOf } from '../../src/db/poolers/line.ts'

const needs = { transactionTimeoutMs: 7000, readOnly: true }
const address = (options?: string) =>
  `postgres://u:p@localhost/d${options === undefined ? '' : `?options=${encodeURIComponent(options)}`}`

describe('settings', () => {
  it('of a session that only reads', () => {
    expect(settingsOf(address(), needs).ofSession).toBe(
      '-c timezone=UTC -c statement_timeout=7000 -c idle_in_transaction_session_timeout=7000 -c default_transaction_read_only=on -c max_parallel_workers_per_gather=0',
    )
  })

  it('of a transaction are the same ones, for its time', () => {
    expect(settingsOf(address(), needs).ofTransaction).toBe(
      `select set_config('timezone', 'UTC', true), set_config('statement_timeout', '7000', true), ` +
        `set_config('idle_in_transaction_session_timeout', '7000', true), ` +
        `set_config('max_parallel_workers_per_gather', '0', true), set_config('transaction_read_only', 'on', true)`,
    )
  })

  it('of who writes say nothing of reading', () => {
    const { ofSession, ofTransaction, afterOpening } = settingsOf(address(), { ...needs, readOnly: false })
    expect(`${ofSession}${ofTransaction}${afterOpening}`).not.toContain('read_only')
  })

  it('that the address asks for stay, but for those that are ours', () => {
    const { ofSession, ofTransaction, ofAddress } = settingsOf(
      address(`-c search_path=app\\ one,public --work-mem=8MB -ctimezone=Europe/Berlin`),
      needs,
    )
    expect(ofSession).toMatch(/^-c search_path=app\\ one,public .* -c timezone=UTC /)
    expect(ofTransaction).toContain(`set_config('search_path', 'app one,public', true)`)
    expect(ofTransaction).toContain(`set_config('work_mem', '8MB', true)`)
    expect(ofTransaction).toContain(`set_config('timezone', 'UTC', true)`)
    expect(ofTransaction).not.toContain('Berlin')
    expect(ofAddress).toBeUndefined()
  })

  it('cannot leave their quotes', () => {
    expect(settingsOf(address(`-c search_path=a'b`), needs).ofTransaction).toContain(`'a''b'`)
  })

  it('are told from what a service finds the database by', () => {
    const { ofAddress, ofTransaction } = settingsOf(address('endpoint=ep-1 -c search_path=app'), needs)
    expect(ofAddress).toBe('endpoint=ep-1')
    expect(ofTransaction).not.toContain('endpoint')
  })
})
