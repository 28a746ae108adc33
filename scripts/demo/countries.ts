import { continents, countries, languages } from 'countries-list'

export type Continent = { readonly code: string; readonly name: string }

export type Language = {
  readonly code: string
  readonly name: string
  readonly native: string
  readonly rtl?: number
}

/** A row of the collection `country`: arrays and nested objects stay what they are, as JSON. */
export type Country = {
  readonly code: string
  readonly name: string
  readonly native: string
  readonly capital: string
  readonly phone: readonly number[]
  readonly currencies: readonly string[]
  readonly languages: readonly Language[]
  /** The code of the continent. */
  readonly continent: string
}

export const continentRows: readonly Continent[] = Object.entries(continents).map(([code, name]) => ({ code, name }))

/** Every country and territory of ISO 3166-1, by code (MIT-licensed package countries-list). */
export const countryRows: readonly Country[] = Object.entries(countries)
  .map(([code, { name, native, capital, phone, currency, languages: spoken, continent }]) => ({
    code,
    name,
    native,
    capital,
    phone,
    currencies: currency,
    languages: spoken.map((language) => ({ code: language, ...languages[language] })),
    continent,
  }))
  .sort((a, b) => (a.code < b.code ? -1 : 1))

/** The two collections, as they are posted to /schemas: a country belongs to a continent. */
export const definitions = [
  {
    collectionName: 'continent',
    schema: { fields: { code: { type: 'String', primaryKey: true }, name: { type: 'String', allowNull: false } } },
  },
  {
    collectionName: 'country',
    schema: {
      fields: {
        code: { type: 'String', primaryKey: true },
        name: { type: 'String', allowNull: false },
        native: { type: 'String' },
        capital: { type: 'String' },
        phone: { type: 'JSON' },
        currencies: { type: 'JSON' },
        languages: { type: 'JSON' },
        continent: { relType: 'BelongsTo', target: 'continent', allowNull: false },
      },
    },
  },
]
