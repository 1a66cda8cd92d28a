#!/bin/bash
# Copy the text files of a folder: backup.sh SOURCE DESTINATION
src=$1
dest=$2
count=0
for file in $(ls $src/*txt); do
  cp $file $dest
  count=$count+1
done
echo "copied $count files"
