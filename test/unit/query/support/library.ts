import { T1, T2, U1, U2 } from './access.ts'
import { createTable } from './builder.ts'
import { catalog } from './catalog.ts'

/** Collections whose types need no extension. */
export const plainCollections = [...catalog.collections.values()].filter(({ name }) => name !== 'places')

const I1 = '00000000-0000-4000-8000-0000000000b1'
const Q1 = '00000000-0000-4000-8000-0000000000c1'

/** Tables of the catalog and a few rows whose answers can be told by looking. */
export const librarySql = `
${plainCollections.map(createTable).join(';\n')};
insert into teams values (1, 'red'), (2, 'blue');
insert into users (id, name, email, age, password, team_Id) values
  ('${U1}', 'Ann', 'ann@example.com', 30, 'canary-hash', 1),
  ('${U2}', 'Bob', 'bob@example.com', 40, 'canary-hash', 2);
insert into profiles values (1, 'Onward', '${U1}');
insert into categories values (1, 'News', null, 2), (2, 'Local', 1, 1), (3, 'Sports', 1, null);
insert into notes (id, title, body, status, stars, views, price, rating, weight, pinned, due, published, local, alarm,
  meta, tags, amounts, moments, pages, period, prices, share, code, canary, secret, "owner_Id", "category_Id", "deletedAt") values
  (1, 'Alpha 100%', 'The quick brown fox', 'published', 5, 9007199254740993, 10.50, 1.5, 0.1, true, '2024-05-01',
   '2024-05-01 23:30:00.123456+02', '2024-05-01 10:00:00', '08:30:00',
   '{"k": 1, "s": "x", "n": null, "list": [1, 2, 3], "deep": {"a": {"b": 7}}}', '{red,green}', '{1.10,2.20}',
   '{2024-01-01T00:00:00Z,2024-01-02T00:00:00.5Z}', '[1,5)', '[2024-01-01T00:00:00Z,2024-02-01T00:00:00Z)', '[1.10,2.20]',
   '[0.5,1.5)', '${I1}', 'canary', 'hidden', '${U1}', 2, null),
  (2, 'Beta_two', 'Lazy dogs sleep', 'draft', 3, 42, 20.00, 2.5, 0.2, false, '2024-05-02', '2024-05-02 10:00:00Z',
   '2024-05-02 10:00:00', '09:00:00', '{"k": 2, "list": []}', '{}', null, null, '[,10)', null, null, null, null, 'canary',
   'hidden', '${U2}', 3, null),
  (3, 'Gamma', null, 'draft', null, null, null, null, null, null, null, null, null, null, null, null, null, null, 'empty',
   null, null, null, null, null, null, null, null, null),
  (4, 'Deleted', 'gone', 'draft', 1, 1, 1, 1, 1, true, '2024-05-04', '2024-05-04 10:00:00Z', null, null, '{"k": "1"}',
   '{red}', null, null, null, null, null, null, null, null, null, '${U1}', 1, '2024-05-05 00:00:00Z');
insert into comments values
  (1, 'first', 10, '2024-05-01 00:00:00Z', 1, '${U2}', null), (2, 'second', 0, '2024-05-02 00:00:00Z', 1, '${U1}', null),
  (3, 'third', 7, '2024-05-03 00:00:00Z', 2, '${U1}', null), (4, 'removed', 99, '2024-05-03 00:00:00Z', 2, '${U1}', now());
insert into labels values (1, 'urgent'), (2, 'later');
insert into note_labels values (1, 1, 1), (2, 1, 2), (3, 2, 2);
insert into images values ('${I1}', '/one.png');
insert into quotes values ('${Q1}', 'Carpe diem');
insert into notes_blocks_junction values (1, 1, '${I1}', 'images'), (2, 1, '${Q1}', 'quotes'), (3, 2, '${Q1}', 'quotes');
insert into clients values (1, 'Mine', '${T1}'), (2, 'Theirs', '${T2}');
insert into orders values
  (1, 10.00, '2024-01-01', '${T1}', 1), (2, 20.00, '2024-01-02', '${T2}', 2), (3, 5.00, '2024-01-03', '${T1}', 2);
insert into "svc_File" values (gen_random_uuid(), 'mine', false, '${T1}'), (gen_random_uuid(), 'theirs', false, '${T2}'),
  (gen_random_uuid(), 'theirs-public', true, '${T2}');
insert into "svc_User" values ('${U1}', 'ann@example.com', 'x'), ('${U2}', 'bob@example.com', 'y');
insert into "svc_UserRole" values (gen_random_uuid(), '${U1}', '${T1}'), (gen_random_uuid(), '${U2}', '${T2}');
`.replaceAll('team_Id)', '"team_Id")')
