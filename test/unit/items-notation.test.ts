import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Kind } from '../../src/catalog/catalog.ts'
import { dateFormats, readNotation, textInNotation } from '../../src/features/data/items/file-notation.ts'

/** The notation of numbers and dates in imported files: nothing is guessed. */

const read = (text: string, kind: Kind, given: Parameters<typeof readNotation>[0]) =>
  textInNotation(text, kind, readNotation(given))

describe('a number with a decimal comma', () => {
  it.each([
    ['1', '1'],
    ['007', '007'],
    ['-1,5', '-1.5'],
    ['+,5', '+.5'],
    ['1,234', '1.234'],
    ['1.234', '1234'],
    ['1.234,5', '1234.5'],
    ['12.345.678,90', '12345678.90'],
    ['1 234 567', '1234567'],
    ['1\u00a0234,5', '1234.5'],
    ['1\u202f234\u202f567,5', '1234567.5'],
    ["1'234,5", '1234.5'],
    ['1’234,5', '1234.5'],
    ['1,5E+10', '1.5E+10'],
  ])('%j is %s', (text, number) => expect(read(text, 'decimal', { decimal: ',' })).toBe(number))

  it.each([
    ...['1.5', '0.500', '01.234', '1.23', '1.2345', '1234.567', '12.34.567', '1,234,567', '1.234.5', '1,234.5'],
    ...["1.234'567", '1 234.567', '1..234', '.234', '1. 234', ',', '-', 'x', '1,5 ', '1,5 €', '1,2.345'],
  ])('%j is none', (text) => {
    for (const kind of ['integer', 'bigint', 'decimal', 'float'] as const)
      expect(read(text, kind, { decimal: ',' })).toBeUndefined()
  })

  it('is read as it is written in a language', () => {
    const languages = ['de-DE', 'fr-FR', 'pt-BR', 'da-DK', 'cs-CZ', 'id-ID'].map(
      (language) => new Intl.NumberFormat(language, { maximumFractionDigits: 6 }),
    )
    fc.assert(
      fc.property(fc.integer({ min: -1e9, max: 1e9 }), fc.constantFrom(...languages), (millionths, language) => {
        const number = millionths / 1e4
        expect(Number(read(language.format(number), 'decimal', { decimal: ',' }))).toBe(number)
      }),
    )
  })

  it('leaves other values, and without the comma all of them, as they are', () => {
    expect(read('1,5', 'text', { decimal: ',' })).toBe('1,5')
    expect(read('1,5', 'decimal', {})).toBe('1,5')
    expect(read('1.5', 'decimal', { decimal: '.' })).toBe('1.5')
  })
})

describe('a date', () => {
  it.each([
    ['DD.MM.YYYY', '31.01.2026', '2026-01-31'],
    ['DD.MM.YYYY', '1.2.2026', '2026-02-01'],
    ['DD.MM.YYYY', '29.02.2024', '2024-02-29'],
    ['DD/MM/YYYY', '02/01/2026', '2026-01-02'],
    ['DD-MM-YYYY', '02-01-2026', '2026-01-02'],
    ['MM/DD/YYYY', '2/1/2026', '2026-02-01'],
    ['YYYY/MM/DD', '2026/02/01', '2026-02-01'],
    ['DD.MM.YYYY', '31.01.2026 9:05', '2026-01-31 09:05'],
    ['DD.MM.YYYY', '31.01.2026T09:05:06.5+02:00', '2026-01-31 09:05:06.5+02:00'],
  ])('as %s: %s is %s', (dateFormat, text, iso) => {
    for (const kind of ['datetime', 'datetime_no_tz', 'date'] as const)
      expect(read(text, kind, { dateFormat })).toBe(iso)
  })

  it.each([
    ['DD.MM.YYYY', '2026-01-31'],
    ['DD.MM.YYYY', '31/01/2026'],
    ['DD.MM.YYYY', '31x01x2026'],
    ['DD.MM.YYYY', '01.31.2026'],
    ['DD.MM.YYYY', '30.02.2026'],
    ['DD.MM.YYYY', '31.01.26'],
    ['DD.MM.YYYY', '31.01.2026 '],
    ['DD.MM.YYYY', '31.01.2026 24:00'],
    ['DD.MM.YYYY', '31.01.2026 9:05 PM'],
    ['MM/DD/YYYY', '31/01/2026'],
    ['DD/MM/YYYY', '01/31/2026'],
    ['YYYY/MM/DD', '2026-01-31'],
  ])('as %s: %j is none', (dateFormat, text) => expect(read(text, 'datetime', { dateFormat })).toBeUndefined())

  it('is the same in every format', () => {
    const date = fc.date({ min: new Date('0001-01-01'), max: new Date('9999-12-31'), noInvalidDate: true })
    fc.assert(
      fc.property(date, fc.constantFrom(...dateFormats), (day, dateFormat) => {
        const iso = day.toISOString().slice(0, 10)
        const [year, month, date] = iso.split('-') as [string, string, string]
        const text = dateFormat.replace('YYYY', year).replace('MM', month).replace('DD', date)
        expect(read(text, 'date', { dateFormat })).toBe(iso)
      }),
    )
  })
})

describe('a time in a zone', () => {
  const timezone = 'Europe/Zurich'
  it.each([
    ['2026-01-31 09:00', '2026-01-31T08:00:00Z'],
    ['2026-07-31T09:00:00.123456', '2026-07-31T07:00:00.123456Z'],
    ['2026-01-31', '2026-01-30T23:00:00Z'],
    // Skipped, and shown twice.
    ['2026-03-29 02:30', '2026-03-29T01:30:00Z'],
    ['2026-10-25 02:30', '2026-10-25T01:30:00Z'],
    ['2026-01-31T09:00Z', '2026-01-31T09:00Z'],
    ['2026-01-31T09:00+05:30', '2026-01-31T09:00+05:30'],
    ['0001-01-01', '0001-12-31T23:25:52Z BC'],
    ['no time', 'no time'],
  ])('%s is %s', (text, utc) => expect(read(text, 'datetime', { timezone })).toBe(utc))

  it('is the time in a format of dates, too', () => {
    const given = { timezone, dateFormat: 'DD.MM.YYYY' }
    expect(read('1.7.2026 9:00', 'datetime', given)).toBe('2026-07-01T07:00:00Z')
    expect(read('1.7.2026 9:00Z', 'datetime', given)).toBe('2026-07-01 09:00Z')
    expect(read('1.7.2026', 'date', given)).toBe('2026-07-01')
    expect(read('1.7.2026 9:00', 'datetime_no_tz', given)).toBe('2026-07-01 09:00')
  })
})

it.each([
  { timezone: 'Mars/Olympus' },
  { timezone: '+02:00' },
  { timezone: '' },
  { decimal: ';' },
  { decimal: '' },
  { dateFormat: 'dd.mm.yyyy' },
  { dateFormat: 'YY' },
])('%j is refused', (given) =>
  expect(() => readNotation(given)).toThrow(expect.objectContaining({ status: 400, code: 'BAD_QUERY' })),
)
