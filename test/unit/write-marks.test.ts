import pino from 'pino'
import { describe, expect, it } from 'vitest'
import { openWriteMarks } from '../../src/db/replicas/write-marks.ts'

/** A table of marks whose log grows by ten with every mark. */
function table() {
  const rows = new Map<string, bigint>()
  let end = 0n
  let broken = false
  const marks = openWriteMarks({
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
  return { marks, rows, cut }
}

describe('what a replica must have for a caller', () => {
  it('is unknown until there is a floor, which the first question makes', async () => {
    const { marks } = table()
    expect(await marks.positionFor('ada')).toBeUndefined()
    expect(await marks.positionFor('ada')).toBe(10n)
  })

  it('is the end of the log at the last write, never below the floor', async () => {
    const { marks } = table()
    await marks.note('floor')
    await marks.note('ada')
    await marks.note('ada', 'bob')
    expect(await marks.positionFor('ada')).toBe(30n)
    expect(await marks.positionFor('carl')).toBe(10n)
    await marks.note('floor')
    expect(await marks.positionFor('bob')).toBe(40n)
  })

  it('is unknown again when a crash of the server has emptied the table', async () => {
    const { marks, rows } = table()
    await marks.note('floor', 'ada')
    rows.clear()
    expect(await marks.positionFor('ada')).toBeUndefined()
    expect(await marks.positionFor('ada')).toBe(20n)
  })

  it('is unknown while a write could not be noted, for its caller alone', async () => {
    const { marks, cut } = table()
    await marks.note('floor')
    cut(true)
    await marks.note('ada')
    expect([await marks.positionFor('ada'), await marks.positionFor('bob')]).toEqual([undefined, 10n])
    await marks.retry()
    expect(await marks.positionFor('ada')).toBeUndefined()
    cut(false)
    await marks.retry()
    expect(await marks.positionFor('ada')).toBe(20n)
  })
})
