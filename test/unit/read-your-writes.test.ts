import pino from 'pino'
import { describe, expect, it } from 'vitest'
import { openWritePositions } from '../../src/db/replicas/write-positions.ts'

/** A table of positions whose log grows by ten with every one. */
function table() {
  const rows = new Map<string, bigint>()
  let end = 0n
  let broken = false
  const positions = openWritePositions({
    store: async (callers) => {
      if (broken) throw new Error('no line')
      end += 10n
      for (const caller of callers) rows.set(caller, end)
    },
    load: async (callers) =>
      new Map(callers.flatMap((caller) => (rows.has(caller) ? [[caller, rows.get(caller)!]] : []))),
    log: pino({ level: 'silent' }),
  })
  const cut = (isCut: boolean) => {
    broken = isCut
  }
  return { positions, rows, cut }
}

describe('changes that a replica must have for a caller', () => {
  it('is unknown until there is a floor, which the first question makes', async () => {
    const { positions } = table()
    expect(await positions.positionFor('ada')).toBeUndefined()
    expect(await positions.positionFor('ada')).toBe(10n)
  })

  it('is the end of the log at the last write, never below the floor', async () => {
    const { positions } = table()
    await positions.note('floor')
    await positions.note('ada')
    await positions.note('ada', 'bob')
    expect(await positions.positionFor('ada')).toBe(30n)
    expect(await positions.positionFor('carl')).toBe(10n)
    await positions.note('floor')
    expect(await positions.positionFor('bob')).toBe(40n)
  })

  it('is unknown again when a crash of the server has emptied the table', async () => {
    const { positions, rows } = table()
    await positions.note('floor', 'ada')
    rows.clear()
    expect(await positions.positionFor('ada')).toBeUndefined()
    expect(await positions.positionFor('ada')).toBe(20n)
  })

  it('is unknown while a write could not be noted, for its caller alone', async () => {
    const { positions, cut } = table()
    await positions.note('floor')
    cut(true)
    await positions.note('ada')
    expect([await positions.positionFor('ada'), await positions.positionFor('bob')]).toEqual([undefined, 10n])
    await positions.retry()
    expect(await positions.positionFor('ada')).toBeUndefined()
    cut(false)
    await positions.retry()
    expect(await positions.positionFor('ada')).toBe(20n)
  })
})
