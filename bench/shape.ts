/**
 * The data of the bench, as both sides know it. `article` is the twin of `product` that writes go to, so that reads meet
 * the same rows in every round; `product_1m` and `product_10k` are twins of other sizes.
 */
export const twins = ['product', 'article', 'product_10k', 'product_1m'] as const
export type Twin = (typeof twins)[number]

export const categories = 20
/** One of them is the role with a row rule: it sees its own rows, a tenth. */
export const owners = 10

/** Ids count upwards, as those of a sequence or of time-ordered UUIDs do. */
export const idOf = (n: number): string => `00000000-0000-4000-8000-${n.toString(16).padStart(12, '0')}`

/** The owner of the n-th product, as the seed makes it. */
export const ownerOf = (n: number): number => Math.floor(n / categories) % owners
/** The n-th product of an owner. */
export const ownedBy = (owner: number, n: number): number =>
  Math.floor(n / categories) * categories * owners + owner * categories + (n % categories)

const fields = {
  sku: { type: 'String', allowNull: false, unique: true },
  name: { type: 'String', allowNull: false },
  description: { type: 'Text' },
  price: { type: 'Decimal', values: { precision: 10, scale: 2 }, allowNull: false },
  stock: { type: 'Integer', allowNull: false, defaultValue: 0 },
  active: { type: 'Boolean', allowNull: false, defaultValue: true },
  releasedAt: { type: 'DateTime' },
  owner_Id: { type: 'UUID' },
  category: { relType: 'BelongsTo', target: 'category', allowNull: false },
}

/** As they are posted to /schemas. */
export const definitions = [
  {
    collectionName: 'category',
    schema: { fields: { name: { type: 'String', allowNull: false }, slug: { type: 'String', allowNull: false } } },
  },
  ...twins.map((collectionName) => ({
    collectionName,
    schema: {
      fields,
      indexes: [{ fields: ['category_Id', 'price'] }, { fields: ['owner_Id', 'category_Id', 'price'] }],
    },
  })),
]
