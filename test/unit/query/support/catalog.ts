import { belongsTo, belongsToMany, catalogOf, collection, field, hasMany, hasOne, polymorphic } from './builder.ts'

/** A small publishing house: every type and every kind of relation once. */
export const catalog = catalogOf(
  collection('notes', {
    paranoid: true,
    fields: [
      field('id', 'Integer'),
      field('title', 'String'),
      field('body', 'Text'),
      field('status', 'ENUM', { enumValues: ['draft', 'published'] }),
      field('stars', 'Integer'),
      field('views', 'BigInt'),
      field('price', 'Decimal'),
      field('rating', 'Double'),
      field('weight', 'Real'),
      field('pinned', 'Boolean'),
      field('due', 'Date'),
      field('published', 'DateTime'),
      field('local', 'DateTime_NO_TZ'),
      field('alarm', 'Time_NO_TZ'),
      field('meta', 'JSON'),
      field('tags', 'Array_String'),
      field('amounts', 'Array_Decimal'),
      field('moments', 'Array_DateTime'),
      field('pages', 'Range_Integer'),
      field('period', 'Range_DateTime'),
      field('prices', 'Range_Decimal'),
      field('share', 'Range_Double'),
      field('code', 'UUID'),
      field('canary', 'String'),
      field('secret', 'String', { hidden: true }),
      field('owner_Id', 'UUID'),
      field('category_Id', 'Integer'),
      field('deletedAt', 'DateTime'),
    ],
    relations: [
      belongsTo('owner', 'users'),
      belongsTo('category', 'categories'),
      hasMany('comments', 'comments', 'note_Id'),
      belongsToMany('labels', 'labels', 'note_labels', 'note_Id', 'label_Id'),
      polymorphic('blocks', 'notes_blocks_junction', 'notes_id', ['images', 'quotes']),
    ],
  }),
  collection('users', {
    fields: [
      field('id', 'UUID'),
      field('name', 'String'),
      field('email', 'String', { unique: true }),
      field('age', 'Integer'),
      field('password', 'String', { hidden: true }),
      field('team_Id', 'Integer'),
    ],
    relations: [
      belongsTo('team', 'teams'),
      hasMany('notes', 'notes', 'owner_Id'),
      hasOne('profile', 'profiles', 'user_Id'),
    ],
  }),
  collection('profiles', {
    fields: [field('id', 'Integer'), field('motto', 'String'), field('user_Id', 'UUID')],
    relations: [belongsTo('user', 'users')],
  }),
  collection('teams', {
    fields: [field('id', 'Integer'), field('name', 'String')],
    relations: [hasMany('members', 'users', 'team_Id')],
  }),
  collection('categories', {
    sortEnabled: true,
    fields: [field('id', 'Integer'), field('name', 'String'), field('parent_Id', 'Integer'), field('sort', 'Integer')],
    relations: [belongsTo('parent', 'categories'), hasMany('children', 'categories', 'parent_Id')],
  }),
  collection('comments', {
    paranoid: true,
    fields: [
      field('id', 'Integer'),
      field('text', 'String'),
      field('likes', 'Integer'),
      field('at', 'DateTime'),
      field('note_Id', 'Integer'),
      field('author_Id', 'UUID'),
      field('deletedAt', 'DateTime'),
    ],
    relations: [belongsTo('note', 'notes'), belongsTo('author', 'users')],
  }),
  collection('labels', { fields: [field('id', 'Integer'), field('name', 'String')] }),
  collection('note_labels', {
    isJunction: true,
    fields: [field('id', 'Integer'), field('note_Id', 'Integer'), field('label_Id', 'Integer')],
  }),
  collection('notes_blocks_junction', {
    isJunction: true,
    fields: [
      field('id', 'Integer'),
      field('notes_id', 'Integer'),
      field('item_id', 'UUID'),
      field('collection', 'String'),
    ],
    relations: ['images', 'quotes'].map((name) =>
      belongsTo(name, name, 'item_id', { constraint: false, discriminator: { column: 'collection', value: name } }),
    ),
  }),
  collection('images', { fields: [field('id', 'UUID'), field('url', 'String')] }),
  collection('quotes', { fields: [field('id', 'UUID'), field('words', 'String')] }),
  collection('orders', {
    fields: [
      field('id', 'Integer'),
      field('total', 'Decimal'),
      field('day', 'Date'),
      field('tenant_Id', 'UUID'),
      field('client_Id', 'Integer'),
    ],
    relations: [belongsTo('client', 'clients')],
  }),
  collection('clients', { fields: [field('id', 'Integer'), field('name', 'String'), field('tenant_Id', 'UUID')] }),
  collection('untenanted', { fields: [field('id', 'Integer'), field('name', 'String')] }),
  collection('places', {
    fields: [
      field('id', 'Integer'),
      field('at', 'Point'),
      field('area', 'Polygon'),
      field('spot', 'Geography'),
      field('embedding', 'Vector'),
      field('sparse', 'SparseVec'),
    ],
  }),
  collection('svc_User', {
    fields: [field('id', 'UUID'), field('email', 'String'), field('password', 'String', { hidden: true })],
    relations: [hasMany('userRoles', 'svc_UserRole', 'user_Id')],
  }),
  collection('svc_UserRole', { fields: [field('id', 'UUID'), field('user_Id', 'UUID'), field('tenant_Id', 'UUID')] }),
  collection('svc_File', {
    fields: [
      field('id', 'UUID'),
      field('filename', 'String'),
      field('isPublic', 'Boolean'),
      field('tenant_Id', 'UUID'),
    ],
  }),
  collection('svc_Template', { fields: [field('id', 'UUID'), field('type', 'String'), field('tenant_Id', 'UUID')] }),
  collection('svc_Settings', {
    fields: [
      field('id', 'Integer'),
      field('title', 'String'),
      field('smtp_host', 'String'),
      field('smtp_pass', 'String', { hidden: true }),
    ],
  }),
)
